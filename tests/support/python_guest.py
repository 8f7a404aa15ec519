"""A Python program with all that it opens, as an archive for a guest of ``qemu_guest``.

The program runs here first, and its files are noted: sources, bytecode, shared libraries. In the
guest they have the same paths."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import lsm
from lsm import native
from support.cpio import write_archive

_PACKAGE = Path(lsm.__file__).parent
_LOADER = Path("/lib64/ld-linux-x86-64.so.2")
_APART = ("/proc/", "/sys/", "/dev/")
_LOOKED_FOR = ("torch/bin/torch_shm_manager",)
"""Files that have to be there, though nobody opens them."""
_NOTE = """
import atexit, json, os, runpy, sys
opened, (noted, program) = set(), sys.argv[1:3]
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened.add(os.path.abspath(arguments[0]))
def finish():
    for module in list(sys.modules.values()):  # some were imported before the hook
        found = [vars(module).get(key) for key in ("__file__", "__cached__")]
        opened.update(path for path in found if isinstance(path, str))
    with open("/proc/self/maps") as maps:
        opened.update(line.split(maxsplit=5)[5].strip() for line in maps if "/" in line)
    with open(noted, "w") as file:
        json.dump(sorted(opened), file)
sys.addaudithook(note)
atexit.register(finish)
sys.argv[:] = sys.argv[2:]
runpy.run_path(program, run_name="__main__")
"""


def pack(out: Path, program: str, here: list[str], there: list[str]) -> None:
    """Writes to ``out`` an archive with all that ``program`` opens when it runs here with the
    arguments ``here``, and with its command for the guest, with the arguments ``there``."""
    noted = out.with_suffix(".json")
    command = [sys.executable, "-c", _NOTE, str(noted), program, *here]
    environment = {**os.environ, "PYTHONPATH": _python_path()}
    subprocess.run(command, check=True, timeout=300, env=environment)
    opened = [path for path in json.loads(noted.read_text()) if not path.startswith(_APART)]
    files = {Path(path) for path in opened if not _is_made(path) and Path(path).is_file()}
    files |= {_source(path) for path in files if path.suffix == ".pyc"}
    interpreter = Path(sys.executable).resolve()
    files |= {Path(program), interpreter, _LOADER}
    files |= {p for folder in sys.path for f in _LOOKED_FOR if (p := Path(folder, f)).is_file()}
    named = {str(name).lstrip("/"): path for path in files for name in _names(path)}
    # An editable install has the native module elsewhere, and a hook that finds it there.
    core = Path(sys.modules[native.BufferPool.__module__].__file__)
    named[str(_PACKAGE / core.name).lstrip("/")] = core
    with open(out, "wb") as file:
        write_archive(
            file, {"command": _command([interpreter, program, *there], files).encode(), **named}
        )


def _command(words: list[Path | str], files: set[Path]) -> str:
    """A line per variable of the environment, an empty line, a line per argument."""
    system = {str(p.parent) for p in files if ".so" in p.name and str(p).startswith("/usr/lib")}
    variables = {
        "LD_LIBRARY_PATH": ":".join([*sorted(system), f"{sys.base_prefix}/lib"]),
        "PYTHONHOME": sys.base_prefix,
        "PYTHONPATH": _python_path(),
        "PYTHONUNBUFFERED": "1",
        "HOME": "/tmp",
        "OMP_NUM_THREADS": "1",
    }
    lines = [f"{key}={value}" for key, value in variables.items()]
    return "\n".join([*lines, "", *map(str, words), ""])


def _is_made(path: str) -> bool:
    """Whether the program wrote it, and no package holds it."""
    packages = (str(_PACKAGE.parent), *filter(None, sys.path))
    return path.startswith(f"{tempfile.gettempdir()}/") and not path.startswith(packages)


def _python_path() -> str:
    return ":".join((str(_PACKAGE.parent), *filter(None, sys.path)))


def _source(bytecode: Path) -> Path:
    return bytecode.parent.parent / f"{bytecode.name.split('.')[0]}.py"


def _names(path: Path) -> list[Path]:
    """The path, and those by which a library is loaded: libz.so.1 for libz.so.1.2.13."""
    names = [path]
    while re.search(r"\.so\.\d+\.\d+", names[-1].name):
        names.append(names[-1].with_suffix(""))
    return names
