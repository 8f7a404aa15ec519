"""The parts depend on one another in one direction, and Python enters native code in one place."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {"kernels": {"kernels"}, "cache": {"cache", "kernels"}, "comm": {"comm", "kernels"}}
BINDING = re.compile(r"bind(_\w+)?\.(cpp|h)")
PYTHON = re.compile(r"Python\.h|(pybind11|torch|ATen|c10)/")


def native_files(part: str) -> list[Path]:
    return [path for path in (ROOT / part).rglob("*") if path.suffix in {".h", ".cpp", ".cu"}]


def included(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_includes_only_what_is_below_it(part):
    files = native_files(part)
    assert files
    for path in files:
        parts = {header.partition("/")[0] for header in included(path)} & {*ALLOWED, "lsm", "tests"}
        assert parts <= ALLOWED[part], path.relative_to(ROOT)


@pytest.mark.parametrize("part", ALLOWED)
def test_only_bindings_include_python(part):
    including = [path for path in native_files(part) if PYTHON.search("\n".join(included(path)))]
    assert including
    assert [path.name for path in including if not BINDING.fullmatch(path.name)] == []


def test_one_module_imports_the_native_code():
    imports = re.compile(r"^\s*(from lsm import .*\b_core\b|(from|import) lsm\._core\b)", re.M)
    paths = [path for folder in ("lsm", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    importers = [path.relative_to(ROOT) for path in paths if imports.search(path.read_text())]
    assert importers == [Path("lsm/native.py")]


def test_the_package_imports_nothing_of_tests_and_benchmarks():
    imports = re.compile(r"^\s*(from|import) (tests|bench)\b", re.MULTILINE)
    importers = [path for path in (ROOT / "lsm").rglob("*.py") if imports.search(path.read_text())]
    assert importers == []


FLOORS = {
    "native": 1,
    "version": 1,
    "core": 2,
    "distributed": 2,
    "data": 3,
    "sampler": 3,
    "comm": 3,
    "storage": 4,
    "cache": 4,
    "features": 5,
    "doctor": 5,
    "loader": 6,
    "nn": 7,
    "config": 8,
    "train": 9,
    "ablation": 10,
    "embed": 10,
    "cli": 11,
}
APART = {"__init__", "__main__", "reference"}  # the face, which imports lazily, and the tests' own
UPWARD = {("nn", "config")}  # to be mended


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, inside functions and for types too."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "lsm":
            modules |= {f"lsm.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
    return {name for name in modules if name.startswith("lsm.") and name != "lsm._core"}


def test_rooms_import_lower_floors_only():
    upward = set()
    for path in (ROOT / "lsm").rglob("*.py"):
        room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if room in APART:
            continue
        for other in {room_of(name) for name in imported(path)} - {room}:
            assert other not in APART, path
            if FLOORS[other] >= FLOORS[room]:
                upward.add((room, other))
    assert upward == UPWARD
