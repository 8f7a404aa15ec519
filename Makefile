# Two commands do everything: `make quickstart` and `make test`.
PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
NPROC ?= 2

# OFFLINE=1 installs nothing, for machines without a network: packages are those of PYTHON (and of
# PYTHONPATH), and the native module is built into lsm/; warnings of an unknown compiler are no errors.
OFFLINE ?=

ifeq ($(OFFLINE),)
BIN := $(VENV)/bin
RUN := $(BIN)/python
else
RUN := $(shell command -v $(PYTHON))
BIN := $(patsubst %/,%,$(dir $(RUN)))
export PYTHONPATH := $(CURDIR)$(addprefix :,$(PYTHONPATH))
endif
STORE := stores/amazon-computers
GRAPH := tests/datasets/amazon-computers/amazon-computers.tar.gz
NATIVE := $(shell find cache comm kernels -name '*.h' -o -name '*.cpp' -o -name '*.cu') \
  lsm/_core.cpp CMakeLists.txt cmake/cuda.cmake
CPP := $(filter %.h %.cpp %.cu,$(NATIVE)) \
  $(wildcard tests/native/*.h tests/native/*.cpp tests/native/*.cu) \
  $(wildcard tests/guest/*.h tests/guest/*.cpp) \
  $(shell find tests/emulated -name '*.h' -o -name '*.cuh' -o -name '*.cpp')
NVCC ?= $(or $(CUDACXX),nvcc)
# ON, OFF, or AUTO: GPU code is built where nvcc is and torch has CUDA.
LSM_CUDA ?= AUTO
# Compute capabilities that GPU code is built for: native is this machine's, nothing all we support.
CUDA_ARCHS ?=
export CMAKE_ARGS += -DLSM_CUDA=$(LSM_CUDA) -DLSM_GPU_SELFTEST=OFF -DLSM_EMULATED_GPU=OFF
CMAKE_ARGS += $(if $(CUDA_ARCHS),-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHS))
# An editable install knows only the modules of its time, so a new module requires a new install.
PACKAGES := $(shell find lsm -type d ! -name __pycache__)
INSTALL := cmake/install_packages.sh
# Python keeps the modules that it compiles for an import; pip would compile all. Where none were
# kept, each process would compile torch anew, for ten seconds.
unexport PYTHONDONTWRITEBYTECODE
CONSTRAINTS ?= constraints.txt
PIP := $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c $(CONSTRAINTS) \
  $(PIP_ARGS)

.PHONY: first-gpu-run gpu-selftest lent-gpu lent-gpu-module lent-gpu-wheels
.PHONY: help quickstart test test-dgl test-emulated test-gpu test-launch test-nvme test-sanitize
.PHONY: test-slow check-pythons test-pythons test-oldest
.PHONY: configs bench-gpu cuda-check dist docs fuzz lint format stubs build system setup clean

help:
	@echo 'make quickstart  install, build, convert a small real graph, train it from disk'
	@echo 'make test        install, build, run the tests that take seconds'
	@echo 'make test-slow   run the others: ranks, killed programs, compilers, whole trainings, benches'
	@echo 'make check-pythons  compile all files under each Python from 3.11 to 3.13 that is here'
	@echo 'make test-pythons   the tests under each of them, in an environment each'
	@echo 'make test-oldest    the tests with the oldest versions of packages that pyproject.toml allows'
	@echo 'make build       rebuild the native module after a change'
	@echo 'make test-sanitize  run the native tests under the address, undefined and thread sanitizers'
	@echo 'make test-emulated  run GPU code on an emulated GPU, FULL=1 all of it, and plant defects in it'
	@echo 'make fuzz        feed inputs of libFuzzer to the NVMe queue code and the emulated controller'
	@echo 'make test-dgl    test Batch.to_dgl() and its example in an environment with DGL'
	@echo 'make test-nvme   test the NVMe queue code against the controller of QEMU, in a small guest'
	@echo 'make test-gpu    test GPU code, on a machine with a GPU'
	@echo 'make bench-gpu   measure GPU code, on a machine with a GPU'
	@echo 'make first-gpu-run  all that waits for a GPU; call it until it says that it has finished'
	@echo 'make gpu-selftest  build one program of native GPU tests and benches; needs nvcc, and no GPU'
	@echo 'make lent-gpu    fill build/lent-gpu, which bench/lent_gpu.sh takes to a machine with a GPU'
	@echo 'make cuda-check  compile GPU code for all compute capabilities, without a GPU'
	@echo 'make test-launch test the start scripts under torchrun, mpirun and SLURM'
	@echo 'make configs     write the base.yaml files in configs, ablation and embed from the code'
	@echo 'make lint        ruff, mypy and clang-format, without changing anything'
	@echo 'make format      ruff and clang-format, in place'
	@echo 'make docs        build the documentation into build/docs'
	@echo 'make stubs       write lsm/_core.pyi, the types of the native module, anew'
	@echo 'make dist        build an sdist and a wheel into dist/, and try them in a clean environment'
	@echo 'make clean       remove all products of the above'

quickstart: setup $(STORE)/meta.json
	PATH="$(abspath $(BIN)):$$PATH" launch/torchrun.sh $(NPROC) quickstart checkpoint.resume=never

# Tests of a module share fixtures, so a process takes whole files. Without a network the plugin
# may be missing. Threads of torch that wait without a sleep would take the cores of other processes.
# Tests of several ranks mostly wait, so there is a process more than cores (8 at most).
TEST_JOBS ?= $(if $(OFFLINE),,$(shell nproc | awk '{ print ($$1 < 8 ? $$1 + 1 : 8) }'))
PYTEST = OMP_WAIT_POLICY=passive $(RUN) -m pytest $(if $(TEST_JOBS),-n $(TEST_JOBS) --dist loadfile)
test: setup
	$(PYTEST) -m 'not slow'

test-slow: setup
	$(PYTEST) -m slow

# Of Python 3.11 to 3.13 those that are on PATH or of pyenv. PYTHONS='3.12 3.13' names others.
check-pythons:
	PYTHONS='$(PYTHONS)' .ci/pythons

test-pythons:
	PYTHONS='$(PYTHONS)' .ci/pythons test

# The oldest versions that pyproject.toml allows. Takes a build of torch, and one of the module.
test-oldest: export SKBUILD_BUILD_DIR = build/oldest
test-oldest:
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt LSM_CUDA=OFF

# DGL has an environment of its own, on top of $(VENV): its wheels require other versions of our
# dependencies. --no-deps, because $(VENV) has all that blocks need.
.venv-dgl/.built: $(VENV)/.built
	$(PYTHON) -m venv .venv-dgl
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" \
	  % sysconfig.get_path("purelib"))' > "$$(.venv-dgl/bin/python -c \
	  'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
	.venv-dgl/bin/python -m pip install -q --disable-pip-version-check --no-deps dgl==1.1.3
	@touch $@

# The import comes first, because the tests would skip if it failed.
test-dgl: export DGLBACKEND = pytorch
test-dgl: setup .venv-dgl/.built
	.venv-dgl/bin/python -c 'from lsm.loader.dgl import import_dgl; import_dgl()'
	.venv-dgl/bin/python -m pytest tests/loader/test_dgl.py tests/examples -k dgl

# The native code without Python. The sanitizers in a comma-separated list share a build. A report
# fails the tests. With -j2 the tests of one build, most of which wait for one another's threads, run
# at the same time as the other build.
SANITIZERS ?= address,undefined thread
SANITIZED := $(SANITIZERS:%=test-sanitize-%)
.PHONY: $(SANITIZED)
test-sanitize: $(SANITIZED)
$(SANITIZED): export ASAN_OPTIONS = detect_stack_use_after_return=1:check_initialization_order=1
$(SANITIZED): export TSAN_OPTIONS = halt_on_error=1:second_deadlock_stack=1
$(SANITIZED): export UBSAN_OPTIONS = print_stacktrace=1
$(SANITIZED): test-sanitize-%: system $(if $(shell command -v cmake),,$(VENV)/.dependencies)
	set -e; export PATH="$$PATH:$(abspath $(BIN))"; build=build/sanitize-$*; \
	  cmake -S . -B $$build -DLSM_NATIVE_TESTS=ON -DLSM_SANITIZE=$*; \
	  cmake --build $$build --target native_tests --parallel $$(nproc); \
	  $$build/tests/native/native_tests

# The present build, which gets more targets for a while: host code has the same objects with them.
MODULE_BUILD = $(if $(OFFLINE),build/offline,build/$(shell $(RUN) -c 'import sys, sysconfig; \
  python = "cp%d%d" % sys.version_info[:2]; \
  print(python, python, sysconfig.get_platform().replace("-", "_"), sep="-")'))

# GPU code on threads of the host (tests/emulated/README.md). FULL=1 runs all of both builds, of
# which CI runs a part. Bindings are those of the module.
FULL ?=
test-emulated: setup
	set -e; export PATH="$(abspath $(BIN)):$$PATH"; build=$(MODULE_BUILD); \
	  trap 'cmake -S . -B $$build $(CMAKE_ARGS) >/dev/null' EXIT; \
	  cmake -S . -B $$build $(CMAKE_ARGS) -DLSM_EMULATED_GPU=ON; \
	  cmake --build $$build --target emulated --parallel $$(nproc)
	$(RUN) tests/emulated/run.py $(if $(FULL),--full)

# Not part of CI: runs for FUZZ_SECS, and needs clang with its runtime libraries. build/fuzz keeps
# failing inputs, and build/fuzz/corpus useful ones for the next run.
FUZZ_SECS ?= 300
CLANGXX ?= clang++
fuzz: export ASAN_OPTIONS = detect_stack_use_after_return=1
fuzz: export UBSAN_OPTIONS = print_stacktrace=1
fuzz: system $(if $(shell command -v cmake),,$(VENV)/.dependencies)
	@mkdir -p build/fuzz/corpus; \
	if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' | \
	  $(CLANGXX) -fsanitize=fuzzer,address,undefined -x c++ - -o build/fuzz/probe 2>/dev/null; then \
	  echo '$(CLANGXX) with -fsanitize=fuzzer is missing: skipping; install it with: sudo apt-get' \
	    'install clang libclang-rt-dev (or name another: make fuzz CLANGXX=clang++-19)'; exit 0; \
	fi; set -e; export PATH="$$PATH:$(abspath $(BIN))"; \
	cmake -S . -B build/fuzz -DCMAKE_CXX_COMPILER=$(CLANGXX) -DLSM_NATIVE_TESTS=ON \
	  -DLSM_IO_URING=OFF -DLSM_SANITIZE=fuzzer-no-link,address,undefined; \
	cmake --build build/fuzz --target nvme_fuzz --parallel $$(nproc); \
	build/fuzz/tests/native/nvme_fuzz -max_total_time=$(FUZZ_SECS) -max_len=2048 -timeout=30 \
	  -artifact_prefix=build/fuzz/ build/fuzz/corpus

# QEMU's NVMe controller in a small Linux guest. Without QEMU or a kernel for the guest the tests are
# skipped, with the reason. LIBNVM_KO: the kernel module of BaM, built for the guest's kernel;
# with it, its transport is tested, too.
test-nvme: setup
	-tests/guest/get_guest.sh build/guest
	if [ -n "$(LIBNVM_KO)" ]; then cp "$(LIBNVM_KO)" build/guest/libnvm.ko; fi
	set -e; export PATH="$$PATH:$(abspath $(BIN))"; \
	  cmake -S . -B build/guest -DLSM_NATIVE_TESTS=ON -DLSM_IO_URING=OFF; \
	  cmake --build build/guest --target nvme_guest --parallel $$(nproc)
	LSM_GUEST=build/guest $(BIN)/python -m pytest tests/guest -rs

# Compiling needs nvcc only. The present build gets GPU code and gpu_selftest. The module must also link
# and load without a driver; it goes to a folder where no test finds it.
cuda-check: setup | $(filter test-emulated,$(MAKECMDGOALS)) # which works in the same build
	@if ! command -v $(NVCC) >/dev/null; then \
	  echo 'nvcc is not installed: GPU code is not compiled'; exit 0; \
	fi; set -e; export PATH="$(abspath $(BIN)):$$PATH"; build=$(MODULE_BUILD); \
	trap 'cmake -S . -B $$build $(CMAKE_ARGS) -ULSM_MODULE_DIR >/dev/null' EXIT; \
	cmake -S . -B $$build $(CMAKE_ARGS) -DLSM_CUDA=ON -DLSM_GPU_SELFTEST=ON \
	  -DLSM_MODULE_DIR=$(abspath build/cuda); \
	cmake --build $$build --parallel $$(nproc); \
	$$build/tests/gpu/gpu_selftest --check || [ $$? = 77 ]; \
	PYTHONPATH=build/cuda $(RUN) -c 'import _core; assert _core.build_info()["cuda"]'

# One program without Python, to take to a machine with a GPU: tests of GPU code, and a bench by
# events. build/lent-gpu has all that such a machine may lack.
SELFTEST_ARCHS = $(or $(CUDA_ARCHS),90)
gpu-selftest: system $(if $(OFFLINE),,$(VENV)/.dependencies)
	@command -v $(NVCC) >/dev/null || { echo 'nvcc is not installed: it compiles GPU code' >&2; exit 1; }
	set -e; export PATH="$(abspath $(BIN)):$$PATH"; \
	cmake -S . -B build/gpu-selftest -G Ninja -DLSM_GPU_SELFTEST=ONLY -DLSM_IO_URING=OFF \
	  -DCMAKE_CUDA_ARCHITECTURES='$(SELFTEST_ARCHS)'; \
	cmake --build build/gpu-selftest --target gpu_selftest
	@mkdir -p build/lent-gpu
	strip -o build/lent-gpu/gpu_selftest build/gpu-selftest/tests/gpu/gpu_selftest
	@ls -lh build/lent-gpu/gpu_selftest

# pydantic and its four, for the Python of that machine.
LENT_PYTHON ?= 3.12
lent-gpu-wheels: | $(if $(OFFLINE),,$(BIN)/python)
	rm -rf build/lent-gpu/wheels
	$(RUN) -m pip download -q --disable-pip-version-check --only-binary=:all: \
	  --python-version $(LENT_PYTHON) --implementation cp --platform manylinux_2_28_x86_64 \
	  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $(PIP_ARGS) \
	  --dest build/lent-gpu/wheels pydantic

# The module for that Python, if it is here too: the machine is spared minutes of compiling. liburing
# is linked into it, since the machine may lack it.
LENT_INTERPRETER ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/$(LENT_PYTHON).*/bin/python3) \
  $(shell command -v python$(LENT_PYTHON)))
lent-gpu-module: gpu-selftest
	@if [ -z '$(LENT_INTERPRETER)' ]; then \
	  echo 'Python $(LENT_PYTHON) is not here: that machine compiles the module'; exit 0; \
	fi; set -e; export PATH="$(abspath $(BIN)):$$PATH"; \
	export PYTHONPATH="$$($(RUN) -c 'import pybind11; print(*pybind11.__path__)')/.."; \
	cmake -S . -B build/lent-gpu-module -G Ninja -DPython_EXECUTABLE='$(LENT_INTERPRETER)' \
	  -DLSM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES='$(SELFTEST_ARCHS)' \
	  $(addprefix -DLIBURING_LIBRARY=,$(wildcard /usr/lib/*/liburing.a)) \
	  -DLSM_MODULE_DIR=$(abspath build/lent-gpu); \
	cmake --build build/lent-gpu-module; \
	cd bench; $(abspath $(RUN)) -c 'import tree_hash as t; print(t.tree_hash(t.Path("..")))' \
	  >../build/lent-gpu/tree

lent-gpu: gpu-selftest lent-gpu-wheels lent-gpu-module

# SANITIZER=memcheck, synccheck or initcheck: the tests of kernels under that tool of
# compute-sanitizer. racecheck would find nothing: it sees shared memory only, and there is none.
# torch asks for each tensor's memory by itself then, so that its ends are seen.
SANITIZER ?=
KERNEL_TESTS := tests/features/test_gpu_cached_features.py tests/cache/test_gpu_planner.py \
  tests/cache/test_gpu_executor.py tests/native/test_gpu_gather.py tests/sampler/test_gpu_sampler.py \
  tests/storage/test_gpu_nvme.py tests/embed/test_gpu_kernels.py
WATCHED := PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --error-exitcode=1
# BUILT=1: tests the present build.
BUILT ?=
test-gpu: $(if $(BUILT),,setup)
ifeq ($(SANITIZER),)
	$(RUN) -m pytest -m 'gpu or multigpu' -rs $(GPU_TESTS)
else
	$(WATCHED) --tool=$(SANITIZER) $(RUN) -m pytest --timeout=1800 $(or $(GPU_TESTS),$(KERNEL_TESTS))
endif

bench-gpu: setup
	failed=0; $(RUN) bench/gpu.py --check $(BENCH_ARGS) || failed=1; \
	$(RUN) -m torch.distributed.run --standalone --nproc-per-node=2 bench/exchange.py \
	  --device cuda --check && exit $$failed

# Self-test, build, tests, benches and sanitizers, into one record; in calls of at most eight minutes,
# each of which goes on where the last one stopped. Exit status: see bench/first_gpu_run.py --help.
FIRST_RUN_ARGS ?=
first-gpu-run:
	@$(PYTHON) bench/first_gpu_run.py --python '$(RUN)' $(if $(OFFLINE),--offline) $(FIRST_RUN_ARGS)

# Jobs over two network namespaces, under Open MPI, and under a SLURM of this machine alone.
LAUNCH_PROGRAMS := ip:iproute2 mpirun:openmpi-bin munged:munge slurmctld:slurmctld slurmd:slurmd \
  srun:slurm-client
test-launch: export LSM_TEST_LAUNCHERS = 1
test-launch: setup
	@missing=''; \
	for pair in $(LAUNCH_PROGRAMS); do \
	  PATH="$$PATH:/usr/sbin:/sbin"; \
	  command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	[ -z "$$missing" ] || $(INSTALL) $$missing
	$(PIP) mpi4py
	$(BIN)/python -m pytest tests/distributed/test_launchers.py

# The goals that take doctest.
NATIVE_TESTS := $(filter test-sanitize% test-emulated test-nvme fuzz cuda-check gpu-selftest lent-gpu, \
  $(MAKECMDGOALS))

# Installs missing Debian packages that the targets above need.
system:
	@missing=''; \
	command -v c++ >/dev/null || missing="$$missing g++"; \
	command -v $(PYTHON) >/dev/null || missing="$$missing python3"; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' \
	  2>/dev/null || missing="$$missing python3-dev"; \
	echo '#include <liburing.h>' | c++ -E -x c++ - >/dev/null 2>&1 || missing="$$missing liburing-dev"; \
	[ -z '$(NATIVE_TESTS)' ] || echo '#include <doctest/doctest.h>' | \
	  c++ -E -x c++ - >/dev/null 2>&1 || missing="$$missing doctest-dev"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$missing" = ' liburing-dev' ] && ! $(INSTALL) --can; then \
	  echo 'liburing-dev is missing: building without the io_uring engine'; \
	else \
	  $(INSTALL) $$missing; \
	fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make PYTHON=python3.12 ...' >&2; exit 1; }

ifeq ($(OFFLINE),)
setup: system $(VENV)/.built
else
setup:
	@set -e; export PATH="$(BIN):$$PATH"; \
	cmake -S . -B build/offline -G Ninja -DPython_EXECUTABLE=$(RUN) -DLSM_WERROR=OFF \
	  $(CMAKE_ARGS) >/dev/null; \
	cmake --build build/offline
endif

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first, alone: its version determines the builds of the other packages.
$(VENV)/.dependencies: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo 'installing Python packages into $(VENV)'
	$(PIP) torch
	$(PIP) scikit-build-core pybind11 cmake ninja
	@touch $@

$(VENV)/.built: $(VENV)/.dependencies $(NATIVE) $(PACKAGES)
	@echo 'building'
	$(PIP) --no-build-isolation -e '.[dev,plot]'
	@touch $@

build: setup

$(STORE)/meta.json: | setup
	$(BIN)/python -m tarfile -e $(GRAPH) build/data
	$(BIN)/lsm data convert npy build/data/amazon-computers --out $(STORE)

# The wheel takes the objects of the present build. Its test proves that all the files which the
# compiler read are in the source archive. Without MAKEFLAGS, since Python passes on no job server.
dist: setup
	$(PIP) build
	rm -rf dist
	MAKEFLAGS= PATH="$(abspath $(BIN)):$$PATH" $(RUN) -m build --no-isolation --sdist --wheel \
	  --outdir dist . >build/dist.log || { tail -40 build/dist.log; exit 1; }
	$(RUN) tests/packages/run.py dist --no-compile $(PIP_ARGS)

# The pages, and their search, also work when opened as files.
docs: setup
ifeq ($(OFFLINE),)
	$(PIP) mkdocs-material 'mkdocstrings[python]'
endif
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo 'build/docs/index.html'

configs: setup
	$(RUN) -m lsm.cli.generate

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(RUN) -m mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

stubs: setup
	$(RUN) cmake/stubs.py lsm/_core.pyi

clean:
	rm -rf build dist $(VENV) .venv-* stores runs .pytest_cache .ruff_cache .hypothesis
	rm -f lsm/_core*.so
