"""The parts depend on one another in one direction, and Python enters native code in one place."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ["kernels", "cache", "comm"]
# Native folders by floor: files include only those of their own folder and of lower floors.
NATIVE_FLOORS = [
    ["kernels/core"],
    ["kernels/embed", "kernels/gather", "kernels/inference", "kernels/links", "kernels/sample"],
    ["kernels/store"],
    ["kernels/io", "kernels/pagerank"],
    ["kernels/io/nvme/protocol"],
    ["kernels/io/nvme/queue", "kernels/io/nvme/transport"],
    ["kernels/io/nvme/controller", "kernels/io/nvme/gpu"],
    ["kernels/io/nvme/emulated"],
    ["kernels/io/nvme/engine"],
    ["kernels/io/engines"],
    ["kernels"],  # bindings only
    ["cache/policy"],
    ["cache", "comm"],
]
BINDING = re.compile(r"bind(_\w+)?\.(cpp|h)")
PYTHON = re.compile(r"Python\.h|(pybind11|torch|ATen|c10)/")


def native_files(part: str) -> list[Path]:
    return [path for path in (ROOT / part).rglob("*") if path.suffix in {".h", ".cpp", ".cu"}]


def included(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE)


def breaches(files: dict[str, list[str]]) -> list[str]:
    """Includes that do not go to a lower floor. ``files``: the headers that each includes."""
    floor_of = {folder: i for i, floor in enumerate(NATIVE_FLOORS) for folder in floor}
    found = []
    for name, headers in files.items():
        folder = name.rpartition("/")[0]
        for header in headers:
            if header.partition("/")[0] not in {*PARTS, "lsm", "tests"}:
                continue  # of the system
            other = header.rpartition("/")[0]
            is_known = folder in floor_of and other in floor_of
            if folder != other and not (is_known and floor_of[other] < floor_of[folder]):
                found.append(f"{name} includes {header}")
    return found


def test_native_folders_include_only_what_is_below_them():
    files = [path for part in PARTS for path in native_files(part)]
    assert breaches({path.relative_to(ROOT).as_posix(): included(path) for path in files}) == []
    folders = {path.parent.relative_to(ROOT).as_posix() for path in files}
    assert folders == {folder for floor in NATIVE_FLOORS for folder in floor}


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("kernels/core/check.h", "kernels/io/storage.h"),
        ("cache/planner.cpp", "comm/owner.h"),
        ("kernels/io/nvme/queue/sparse.h", "kernels/io/nvme/transport/transport.h"),
        ("kernels/new/file.h", "kernels/core/check.h"),
        ("kernels/bind_core.cpp", "lsm/_core.h"),
    ],
)
def test_an_include_upward_is_found(name, header):
    assert breaches({name: ["vector", header]}) == [f"{name} includes {header}"]


NAMESPACE = re.compile(r"^namespace (?:(?P<name>[\w:]+) )?\{|^\}  // namespace", re.MULTILINE)
TYPE = re.compile(
    r"^(?:struct|class|union|enum(?: class)?)(?: alignas\([^)]*\))? ([\w:]+)[^;{(<]*\{",
    re.MULTILINE,
)


def defined_types(text: str) -> set[str]:
    """Full names of the types that a native file defines outside unnamed namespaces."""
    namespaces: list[str | None] = []
    found = set()
    events = [*NAMESPACE.finditer(text), *TYPE.finditer(text)]
    for event in sorted(events, key=lambda match: match.start()):
        if event.re is TYPE:
            if None not in namespaces:
                found.add("::".join([*filter(None, namespaces), event[1]]))
        elif event[0].startswith("namespace"):
            namespaces.append(event["name"])
        else:
            namespaces.pop()
    return found


def test_no_type_is_defined_twice():
    """Two definitions of one name break the one-definition rule, and no linker says so."""
    places: dict[str, list[str]] = {}
    for path in (path for part in PARTS for path in native_files(part)):
        for name in defined_types(path.read_text()):
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert len(places) > 100
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_types_are_found_by_their_full_name():
    text = """namespace lsm {
struct Edges {
};
class alignas(64) Loop final : public Base {
};
struct Declared;
namespace {
struct Edges {
};
}  // namespace
namespace detail {
enum class Kind : int { kOne };
}  // namespace detail
}  // namespace lsm
"""
    assert defined_types(text) == {"lsm::Edges", "lsm::Loop", "lsm::detail::Kind"}


@pytest.mark.parametrize("part", PARTS)
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
    "native": 0,
    "version": 0,
    "core": 1,
    "distributed": 2,
    "graph": 2,
    "data": 3,
    "sampler": 3,
    "links": 3,
    "comm": 3,
    "storage": 4,
    "cache": 4,
    "features": 5,
    "doctor": 5,
    "loader": 6,
    "nn": 7,
    "pyg": 7,
    "run": 8,
    "config": 9,
    "inference": 9,
    "embed": 10,
    "train": 11,
    "ablation": 12,
    "cli": 13,
}
APART = {"__init__", "__main__"}  # the face, which imports lazily


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
    assert upward == set()


def code_lines(path: Path, name: str) -> int:
    """Lines of a class without its docstrings, comments and blank lines."""
    text = path.read_text()
    found = next(node for node in ast.parse(text).body if getattr(node, "name", None) == name)
    prose: set[int] = set()
    for node in ast.walk(found):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = text.splitlines()
    numbers = range(found.lineno, (found.end_lineno or 0) + 1)
    kept = [lines[number - 1].strip() for number in numbers if number not in prose]
    return sum(bool(line) and not line.startswith("#") for line in kept)


SAMPLER_KINDS = {"neighbor", "labor", "ladies"}


def compared_kinds(text: str) -> set[str]:
    """Names of sampler kinds that an expression is compared with."""
    compares = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare)]
    return {
        constant.value
        for compare in compares
        for operand in (compare.left, *compare.comparators)
        for constant in ast.walk(operand)
        if isinstance(constant, ast.Constant) and constant.value in SAMPLER_KINDS
    }


def test_only_the_sampler_compares_with_its_kinds():
    """A kind says by its members what it needs, so that a new one changes no other room."""
    paths = [path for path in (ROOT / "lsm").rglob("*.py") if path.parts[-2] != "sampler"]
    assert {path: kinds for path in paths if (kinds := compared_kinds(path.read_text()))} == {}
    text = 'if kind == "labor" or kind in ("ladies", 1): pass'
    assert compared_kinds(text) == {"labor", "ladies"}


SCHEDULES = re.compile(r"""\bschedule (==|!=|in|not in) """)


def test_one_module_tells_schedules_apart():
    """A schedule says there which settings a resumed run must share, so that a new one is a name
    in the configuration, and lines there."""
    paths = [path for path in (ROOT / "lsm").rglob("*.py") if SCHEDULES.search(path.read_text())]
    assert [path.relative_to(ROOT / "lsm").as_posix() for path in paths] == ["train/schedule.py"]


def test_the_loader_of_nodes_is_a_signature_and_its_parts():
    """All that loaders of nodes and of links share lies in Loader."""
    assert code_lines(ROOT / "lsm/loader/neighbor_loader.py", "NeighborLoader") < 80


def methods(path: str, name: str) -> set[str]:
    """Names of the methods and properties of the class ``name`` in ``path``."""
    (found,) = (
        node
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {node.name for node in found.body if isinstance(node, ast.FunctionDef)}


def test_trainers_share_the_loops_protocol_only():
    """Code of two trainers belongs into the loop."""
    protocol = methods("lsm/run/loop.py", "Trainable")
    training = methods("lsm/train/trainer.py", "Trainer")
    embedding = methods("lsm/embed/trainer.py", "EmbedTrainer")
    assert {"train", "validate", "save"} < protocol
    assert training & embedding - {"__init__"} == protocol
    assert code_lines(ROOT / "lsm/train/trainer.py", "Trainer") < 150
    assert code_lines(ROOT / "lsm/embed/trainer.py", "EmbedTrainer") < 150


@pytest.mark.parametrize(
    ("name", "home"),
    [("Topology", "graph/topology.py"), ("RowMap", "storage/row_map.py")],
)
def test_all_rooms_share_one_class(name, home):
    """Structural twins of it, such as protocols and namespaces, drift apart."""
    defined = re.compile(rf"^class {name}\b|\b{name} = ", re.MULTILINE)
    package = ROOT / "lsm"
    homes = [path for path in package.rglob("*.py") if defined.search(path.read_text())]
    assert homes == [package / home]
    assert "SimpleNamespace(indptr=" not in "".join(p.read_text() for p in package.rglob("*.py"))


# Rows of files are a matter of these; the others know nodes.
ROWS_OF_FILES = re.compile(r"\b(storage|files|opened|feature_files)\.num_rows\b")
KNOW_ROWS = {"storage", "data", "ablation"}  # the last measures files that it wrote


def test_the_rows_of_files_are_not_taken_for_the_nodes_of_a_graph():
    """tests/features/test_row_map.py shows it of the loaders that there are."""
    paths = [
        path for path in (ROOT / "lsm").rglob("*.py") if ROWS_OF_FILES.search(path.read_text())
    ]
    assert {path.relative_to(ROOT / "lsm").parts[0] for path in paths} <= KNOW_ROWS


def test_a_job_is_a_list_of_its_parts():
    """Each part is built by a module of its own."""
    path = ROOT / "lsm/train/job.py"
    assert len(path.read_text().splitlines()) < 120
    assert len(imported(path)) <= 15


def byte_constants(text: str) -> list[str]:
    """Names with BYTES that a module sets to a number of its own."""
    found = []
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names = [each.id for each in targets if isinstance(each, ast.Name) and "BYTES" in each.id]
        numbers = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value != 0]
        found += names if any(isinstance(n.value, int | float) for n in numbers) else []
    return found


def test_training_states_no_memory_of_other_rooms():
    """Each room states its own in its module ``memory``; training divides."""
    paths = sorted((ROOT / "lsm" / "train").glob("*.py"))
    assert {path.name: found for path in paths if (found := byte_constants(path.read_text()))} == {}
    assert [name for name in ("a_BYTES", "_BYTES_B") if byte_constants(f"{name}: int = 2 << 3")]
    stating = {path.parent.name for path in (ROOT / "lsm").glob("*/memory.py")}
    rooms = "core data sampler comm storage cache features loader nn embed"
    assert stating == set(rooms.split())


# Rooms of tests that are no rooms of the package.
OTHER_TESTS = {"bench", "emulated", "examples", "guest", "native"}
HELPERS = ROOT / "tests" / "support"


def python_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def test_tests_lie_in_the_rooms_of_the_package():
    rooms = {path.name for path in (ROOT / "lsm").iterdir() if (path / "__init__.py").exists()}
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in python_tests()}
    assert folders - OTHER_TESTS - {"."} == rooms
    of_all_rooms = {path.name for path in python_tests() if path.parent == ROOT / "tests"}
    assert of_all_rooms == {"test_layout.py", "test_prose.py", "test_versions.py"}


OF_PACKAGE = re.compile(r"^\s*from lsm[\w.]* import (\([^)]*\)|.*)", re.MULTILINE)
PRIVATE = re.compile(r"\b_(?!_|core\b)\w+")


def private_imports(text: str) -> list[str]:
    return [name for names in OF_PACKAGE.findall(text) for name in PRIVATE.findall(names)]


def test_private_names_stay_in_their_module():
    text = (
        "from lsm.a import _b\nif x:\n    from lsm import (\n        c,\n        _d as e,\n    )\n"
    )
    assert private_imports(text) == ["_b", "_d"]
    assert private_imports("from lsm import _core\nfrom lsm.a import b_c\nfrom c import _d") == []
    paths = [path for folder in ("lsm", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    assert {path: found for path in paths if (found := private_imports(path.read_text()))} == {}


def test_no_test_module_imports_another():
    """Helpers lie in tests/support, fixtures in conftest files."""
    imports = re.compile(r"^\s*(?:from|import) +(?:\S*\.)?(test_\w+|conftest)\b", re.MULTILINE)
    paths = (ROOT / "tests").rglob("*.py")
    assert {path: found for path in paths if (found := imports.findall(path.read_text()))} == {}
    assert list(HELPERS.glob("test_*.py")) == []


# Rooms within embed, and what else of embed each imports.
EMBED_ROOMS = {
    "gradients": {"models", "options", "sides"},
    "models": set(),
    "orders": set(),
    "table": {"orders"},
    "use": {"evaluate", "options", "run", "sides", "store"},
}


JOBS = {"run_job", "run_ranks"}


def quick_tests_of_jobs(text: str) -> list[str]:
    """Names of tests that start ranks, and are not marked as slow."""
    tree = ast.parse(text)
    marks = [ast.unparse(line) for line in tree.body if isinstance(line, ast.Assign)]
    if any(mark.startswith("pytestmark") and "slow" in mark for mark in marks):
        return []
    return [
        test.name
        for test in tree.body
        if isinstance(test, ast.FunctionDef)
        and test.name.startswith("test_")
        and JOBS & {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        and "pytest.mark.slow" not in map(ast.unparse, test.decorator_list)
    ]


def test_tests_that_start_ranks_are_slow():
    """`make test` leaves them to `make test-slow`."""
    tests = (ROOT / "tests").rglob("test_*.py")
    found = {path.name: quick_tests_of_jobs(path.read_text()) for path in tests}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_quick_test_that_starts_ranks_is_found():
    text = "def test_two(store):\n    job = run_job(2)\n"
    assert quick_tests_of_jobs(text) == ["test_two"]
    assert quick_tests_of_jobs(f"@pytest.mark.slow\n{text}") == []
    assert quick_tests_of_jobs(f"pytestmark = [pytest.mark.slow]\n{text}") == []


def test_rooms_of_embed_import_nothing_of_training():
    embed = ROOT / "lsm" / "embed"
    assert {path.parent.name for path in embed.glob("*/__init__.py")} == set(EMBED_ROOMS)
    for room, others in EMBED_ROOMS.items():
        for path in (embed / room).glob("*.py"):
            names = [name.split(".") for name in imported(path) if name.startswith("lsm.embed.")]
            assert {name[2] for name in names} <= {room, *others}, path


def compared_words(text: str) -> set[str]:
    """Strings that a file compares with, looks up in a dict display, or matches."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        else:
            continue
        for part in parts:
            inside = part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part]
            found |= {each.value for each in inside if isinstance(each, ast.Constant)}
    return {word for word in found if isinstance(word, str)}


def test_no_room_but_its_own_tells_embedding_models_apart():
    """Elsewhere a model is asked for its properties, so that a new one is an entry of MODELS."""
    from lsm.embed.models.models import MODELS

    paths = [p for p in (ROOT / "lsm").rglob("*.py") if "embed/models" not in p.as_posix()]
    found = {path.relative_to(ROOT): compared_words(path.read_text()) for path in paths}
    assert {path: words & set(MODELS) for path, words in found.items() if words & set(MODELS)} == {}


@pytest.mark.parametrize(
    "text",
    [
        "x == 'dot'",
        "'dot' != x",
        "x in ('auto', 'dot')",
        "{'dot': 1}[x]",
        "match x:\n case 'dot': 1",
    ],
)
def test_a_compared_word_is_found(text):
    assert "dot" in compared_words(text)
