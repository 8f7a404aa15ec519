"""The choice of the training device, and the reasons against a GPU."""

import os

import pytest
import torch

from lsm import native
from lsm.core import device
from lsm.core.device import as_device, choose_device, gpu_of, gpu_problem
from support.described_gpus import T4, cuda_info, torch_cuda
from support.gpus import WITHOUT_GPU
from support.training import make_store, run_forked


@pytest.mark.parametrize(
    ("index", "cuda", "found", "message"),
    [
        (
            0,
            torch_cuda(),
            cuda_info(gpus=(), toolkit=0),
            "built without CUDA; build again with LSM_CUDA=ON",
        ),
        (
            0,
            torch_cuda(),
            cuda_info(driver=12080),
            "serves CUDA up to 12.8, and this was built with 13.0",
        ),
        (
            0,
            torch_cuda(),
            cuda_info(gpus=(), driver=0, problem="too old"),
            r"no NVIDIA driver was found.*--gpus",
        ),
        (
            0,
            torch_cuda(),
            cuda_info(gpus=(), problem="no device"),
            r"finds no GPU \(no device\); see nvidia-smi",
        ),
        (0, torch_cuda(available=False), cuda_info(), "install a build of torch with CUDA"),
        (
            1,
            torch_cuda(),
            cuda_info(),
            "GPU 1 is not among the 1 that torch and the CUDA runtime show",
        ),
        (0, torch_cuda(), cuda_info(gpus=(T4,)), "T4 has compute capability 7.5, and 8.0 or newer"),
    ],
)
def test_why_a_gpu_cannot_train(index, cuda, found, message):
    problem = gpu_problem(index, cuda, found)
    assert problem is not None
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(problem)


def test_a_gpu_that_can():
    assert gpu_problem(0, torch_cuda(), cuda_info()) is None
    # The same major version is compatible, also with an older minor one.
    assert gpu_problem(0, torch_cuda(), cuda_info(toolkit=12080, driver=12040)) is None


@WITHOUT_GPU
def test_auto_takes_the_host_without_a_gpu():
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(RuntimeError, match=r"device=cuda: .* or set device=cpu"):
        choose_device("cuda")


@pytest.mark.slow
@WITHOUT_GPU
def test_a_gpu_asked_for_by_name_is_an_error_of_one_line(tmp_path):
    store = make_store(tmp_path / "store")
    done = run_forked("-m", "lsm", "train", "base", f"data.path={store}", "device=cuda")
    assert done.returncode != 0
    assert "device=cuda: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("local_rank", "num_gpus", "index"), [(0, 4, 0), (3, 4, 3), (3, 1, 0), (5, 4, 1), (2, 0, 2)]
)
def test_ranks_take_visible_gpus_in_turn(local_rank, num_gpus, index):
    assert gpu_of(local_rank, num_gpus) == index


def test_the_native_module_finds_gpus_or_a_problem():
    found = native.find_cuda()
    assert (found.toolkit_version > 0) == native.build_info()["cuda"]
    assert found.problem or found.gpus


@pytest.mark.parametrize(("given", "expected"), [(None, "32"), ("1", "1")])
def test_streams_have_connections_of_their_own(monkeypatch, given, expected):
    """Set before anything of CUDA starts, unless the user has set it."""
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", given or "")
    if given is None:
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    seen = []

    def find_cuda():
        seen.append(os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"))
        return cuda_info(gpus=[])

    monkeypatch.setattr(device.native, "find_cuda", find_cuda)
    choose_device("auto")
    assert seen[0] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("cpu", torch.device("cpu")),
        (torch.device("cuda", 2), torch.device("cuda", 2)),
        ("cuda:1", torch.device("cuda", 1)),
        (3, torch.device("cuda", 3)),
        ("cuda", torch.device("cuda", 5)),
    ],
)
def test_an_argument_names_a_device_with_its_number(monkeypatch, value, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5)
    found = as_device("device", value)
    assert (found.type, found.index) == (expected.type, expected.index)


@pytest.mark.parametrize("value", ["gpu", "meta", "cuda:x", None, 1.5])
def test_another_argument_is_no_device(value):
    with pytest.raises(ValueError, match="device: expected cpu, cuda or a GPU such as cuda:0, got"):
        as_device("device", value)
