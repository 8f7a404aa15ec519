"""Ctrl-C at any moment of a command: one line, exit status 130, and no traceback."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.training import environment, make_store, overrides

pytestmark = pytest.mark.slow

# The clock of the tests begins here, however long a loaded machine takes to start Python.
WATCHED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
from lsm.distributed.interrupt import watch
watch()
print("ready", flush=True)
from lsm.__main__ import main
main()
"""
# Sends SIGINT at the import of one module.
AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)

class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(Interrupt)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
from lsm.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("ctrl-c") / "store")


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted_after(seconds, *arguments):
    """Status and standard error of ``lsm ARGUMENTS``, interrupted ``seconds`` after its start."""
    command = start(WATCHED, *arguments)
    try:
        assert command.stdout.readline() == "ready\n"
        time.sleep(seconds)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=300)
    finally:
        command.kill()
        command.wait()
    return command.returncode, errors


def at_import(module, *arguments):
    """The same of SIGINT at the import of ``module``."""
    command = start(AT_IMPORT, module, *arguments)
    try:
        _, errors = command.communicate(timeout=300)
    finally:
        command.kill()
        command.wait()
    return command.returncode, errors


def endless(store, run_dir):
    return ("train", "base", *overrides(store, run_dir, "train.epochs=100000"))


def test_every_moment_of_a_training(store, tmp_path):
    """Steps of 0.2 s, from the imports into the first epochs; two commands at a time."""
    steps = [0.2 * step for step in range(1, 11)]
    with ThreadPoolExecutor(2) as pool:
        cases = [
            pool.submit(interrupted_after, seconds, *endless(store, tmp_path / str(number)))
            for number, seconds in enumerate(steps)
        ]
        results = [case.result() for case in cases]
    for seconds, (status, errors) in zip(steps, results, strict=True):
        assert status == 130, (seconds, errors)
        assert errors.splitlines()[-1].startswith("lsm: interrupted"), (seconds, errors)
        assert "Traceback" not in errors, (seconds, errors)


def commands(store, directory):
    size, out = 200_000, directory / "synth"
    return {
        "synth": ("data", "synth", "--out", out, "--nodes", size, "--dim", 32, "--no-progress"),
        "info": ("data", "info", store),
        "doctor": ("doctor", directory),
        "bench": ("bench", "storage", "--path", directory, "--size", "1MiB", "--engine", "posix"),
        "trace": ("trace", store, "--out", directory / "trace.npz", "--iterations", 10**6),
        "embed": ("embed", "train", "no-such"),
        "ablate": ("ablate", "no-such"),
    }


@pytest.mark.parametrize("name", commands(None, Path()))
def test_other_commands(store, tmp_path, name):
    """A command that has ended before is no failure of Ctrl-C."""
    arguments = commands(store, tmp_path)[name]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda seconds: interrupted_after(seconds, *arguments), (0.1, 0.7))
        for status, errors in results:
            assert status in (130, 0, 1), errors
            assert (status == 130) == ("lsm: interrupted" in errors), errors
            assert "Traceback" not in errors


@pytest.mark.parametrize("module", ["typer", "lsm.config.load", "torch"])
def test_an_import_at_the_start_ends_with_the_process(store, tmp_path, module):
    status, errors = at_import(module, *endless(store, tmp_path))
    assert status == 130
    (line,) = [line for line in errors.splitlines() if line.startswith("lsm: ")]
    assert line.startswith("lsm: interrupted")
    assert "Traceback" not in errors


# A function of the package; a module that it imports sends SIGINT when it is half imported.
AT_WORK = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from lsm.distributed.interrupt import watch
watch()
folder, work = sys.argv[1:]
sys.path.insert(0, folder)
__builtins__.interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)

import pydantic

class Written(pydantic.BaseModel):
    value: int = 0

    @pydantic.field_serializer("value")
    def write(self, value):
        interrupt()
        return "written"

class Deleted:
    def __del__(self):
        interrupt()
        print("deleted", flush=True)

try:
    exec(compile(work, "work", "exec"), globals() | {"__name__": "lsm.data.work"})
except KeyboardInterrupt:
    print("told", flush=True)
"""
WORK = """
def work():
    try:
        %s
        time.sleep(60)
    finally:
        print("unwound", flush=True)
work()
"""


@pytest.mark.parametrize(
    ("half", "does", "status", "output"),
    [
        ("", "import half", 0, "whole unwound told"),
        ("import time; time.sleep(1); interrupt(); time.sleep(60)", "import half", 130, ""),
        ("", "Deleted()", 0, "deleted unwound told"),
        ("", "print(Written().model_dump()['value'], flush=True)", 0, "written unwound told"),
        ("", "interrupt()", 0, "unwound told"),
    ],
    ids=["import", "twice", "del", "pydantic", "work"],
)
def test_the_package_unwinds_when_an_import_has_ended(tmp_path, half, does, status, output):
    (tmp_path / "half.py").write_text(f"interrupt(); {half}\nprint('whole', flush=True)\n")
    command = start(AT_WORK, tmp_path, WORK % does)
    printed, errors = command.communicate(timeout=300)
    assert (command.returncode, printed.split()) == (status, output.split()), errors
    assert errors == ("lsm: interrupted\n" if status else "")


def test_it_stays_ignored_in_the_background():
    """As `nohup lsm train` and `lsm train &` in a script."""
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from lsm.distributed.interrupt import watch\nwatch()\n"
        "signal.raise_signal(signal.SIGINT)\nprint('lives')"
    )
    command = start(script)
    assert command.communicate(timeout=300) == ("lives\n", "")
