"""Tries the packages that `make dist` builds, as a user would.

run.py DIST [PIP OPTION...]: compares the source archive with the checkout and the files that the
build read, and the wheel with the archive; says which system libraries the wheel needs. Then a new
environment outside the checkout gets the wheel by pip, and runs lsm doctor, makes a store, and
trains an epoch on it.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("configs", "launch")  # the wheel has them as lsm/shipped_files/
SOURCES = ("lsm", "kernels", "cache", "comm", "cmake", *SHIPPED)
SOURCE_FILES = ("CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md")
# Of the compiler and the C library, and the one that is optional (docs/packages.md).
LIBRARIES = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "liburing.so.2"}
TIMEOUT_SECS = 900


def tracked(*folders: str) -> set[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "--", *folders]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def read_by_build(tag: str) -> set[str]:
    """Files of the checkout that the compiler and CMake read for the wheel with this tag."""
    build = ROOT / "build" / tag
    ninja = [sys.executable, "-m", "ninja", "-C", build, "-t"]
    # A line for each object, "... (VALID)"; "build.ninja:"; and below each a line for each file.
    said = output(*ninja, "deps") + output(*ninja, "query", "build.ninja")
    assert "(VALID)" in said, f"{build} has no objects"
    listed = {line.strip(" |") for line in said.splitlines() if line.startswith("    ")}
    paths = {(build / name).resolve() for name in listed}
    others = (ROOT / "build", Path(sys.prefix).resolve())
    read = {
        str(path.relative_to(ROOT))
        for path in paths
        if path.is_relative_to(ROOT) and not any(map(path.is_relative_to, others))
    }
    assert {"CMakeLists.txt", "cmake/cuda.cmake", "lsm/_core.cpp"} <= read, sorted(read)
    return read


def check_archive(path: Path, tag: str) -> dict[str, bytes]:
    """Checks that the archive has all that a build needs, as it is in the checkout, and no data.
    Returns the archive's files."""
    with tarfile.open(path) as archive:
        members = filter(tarfile.TarInfo.isfile, archive.getmembers())
        files = {m.name.partition("/")[2]: archive.extractfile(m).read() for m in members}
    needed = tracked(*SOURCES, *SOURCE_FILES) | read_by_build(tag)
    differ = [name for name in needed if files.get(name) != (ROOT / name).read_bytes()]
    assert not differ, f"{path.name} lacks {sorted(differ)}, or has others"
    assert path.stat().st_size < 4 << 20, f"{path.name}: {path.stat().st_size} bytes"
    return files


def in_wheel(name: str) -> str:
    return f"lsm/shipped_files/{name}" if name.startswith(SHIPPED) else name


def check_wheel(path: Path, source: dict[str, bytes], directory: Path) -> None:
    """Checks that the wheel has the archive's files. Prints its needs."""
    shipped = {name for name in tracked("lsm", *SHIPPED) if not name.endswith(".cpp")}
    expected = {in_wheel(name): source[name] for name in shipped}
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
        (module,) = [name for name in files if re.fullmatch(r"lsm/_core\..*\.so", name)]
        extracted = wheel.extract(module, directory)
    del files[module]
    differ = [name for name in expected | files if files.get(name) != expected.get(name)]
    assert not differ, f"{path.name} and the source archive differ in {sorted(differ)}"
    dynamic = output("readelf", "-d", extracted)
    libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) - {"ld-linux-x86-64.so.2"}
    assert libraries <= LIBRARIES, f"needs {sorted(libraries - LIBRARIES)}"
    versions = output("readelf", "-V", extracted)
    for prefix in ("GLIBC", "GLIBCXX"):
        found = set(re.findall(rf"\b{prefix}_([\d.]+)", versions))
        newest = max(found, key=lambda version: [int(part) for part in version.split(".")])
        print(f"{path.name} needs {prefix} {newest}")
    print(f"{path.name} needs", *sorted(libraries))


def output(*command: object, **options) -> str:
    """The output of a command. Raises RuntimeError with its messages if it fails."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECS, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def check_use(wheel: Path, directory: Path, pip_options: list[str]) -> None:
    """The installed package trains, and finds its own files."""
    venv.create(directory / "env", with_pip=True, symlinks=True)
    bin_folder = directory / "env" / "bin"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["PATH"] = f"{bin_folder}:/usr/bin:/bin"

    def run(*command: object) -> str:
        print("+", *(PurePosixPath(str(word)).name for word in command), flush=True)
        return output(*command, cwd=directory, env=environment)

    constraints = ["-c", ROOT / "constraints.txt", *pip_options]
    run(bin_folder / "python", "-m", "pip", "install", "-q", *constraints, wheel)
    lsm = bin_folder / "lsm"
    assert "trains here: yes" in run(lsm, "doctor")
    sizes = ["--nodes", 3000, "--dim", 32, "--classes", 4, "--avg-degree", 6]
    run(lsm, "data", "synth", "--out", directory / "store", *sizes)
    run(lsm, "data", "verify", directory / "store")
    settings = ["device=cpu", "train.epochs=1", f"run.dir={directory / 'run'}"]
    said = run(lsm, "train", "base", f"data.path={directory / 'store'}", *settings)
    result = json.loads(said.splitlines()[-1])
    assert result["epochs"] == 1, result
    assert 0 < result["test_accuracy"] <= 1, result
    scripts = Path(run(lsm, "launch-dir").strip())
    assert scripts.is_relative_to(directory / "env"), scripts
    assert os.access(scripts / "torchrun.sh", os.X_OK)


def main() -> None:
    dist = Path(sys.argv[1]).resolve()
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    name, version, tag = wheel.stem.split("-", 2)
    assert archive.name == f"{name}-{version}.tar.gz", archive.name
    source = check_archive(archive, tag)
    with tempfile.TemporaryDirectory(prefix="lsm-dist-") as directory:
        check_wheel(wheel, source, Path(directory))
        check_use(wheel, Path(directory), sys.argv[2:])
    print(f"{archive.name} and {wheel.name} work")


main()
