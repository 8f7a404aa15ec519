"""The public face: which names there are, that each can be imported and is documented, and that
importing the package is light."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lsm
import lsm.embed
import lsm.pyg

PUBLIC = {
    "Batch",
    "CacheGroup",
    "CacheOptions",
    "CommOptions",
    "EdgeData",
    "FeatureLoader",
    "GraphStore",
    "LinkNeighborLoader",
    "LinkSplits",
    "NeighborLoader",
    "NodeData",
    "Sampling",
    "StorageOptions",
    "fit",
    "load_config",
    "load_model",
    "open_features",
    "predict",
    "train",
}
ROOMS = sorted(room.name for room in pkgutil.iter_modules(lsm.__path__) if room.ispkg)


def test_the_public_names_are_these():
    assert set(lsm.__all__) == PUBLIC
    assert lsm.__all__ == sorted(lsm.__all__)
    for name in PUBLIC:
        assert getattr(lsm, name) is not None
    with pytest.raises(AttributeError, match="module 'lsm' has no attribute 'nothing'"):
        lsm.nothing  # noqa: B018


def test_dir_shows_the_public_names():
    """For completion; in a process that imported nothing else, no helper is among them."""
    run(
        "import lsm, types\n"
        "shown = [name for name in dir(lsm) if not name.startswith('__')]\n"
        "others = set(shown) - set(lsm.__all__)\n"
        "assert set(lsm.__all__) <= set(shown), shown\n"
        "assert all(isinstance(vars(lsm)[name], types.ModuleType) for name in others), others\n"
        "import lsm.loader\n"
        "assert {'Batch', 'Layer', 'NeighborLoader'} <= set(dir(lsm.loader)), dir(lsm.loader)\n"
        "assert 'lazily' not in dir(lsm.loader)"
    )


def test_rooms_with_public_names_need_no_import_of_their_own():
    run(
        "import lsm, sys\n"
        "assert not {'lsm.embed', 'lsm.pyg'} & set(sys.modules)\n"
        "assert callable(lsm.embed.load_embed_config), lsm.embed\n"
        "assert callable(lsm.pyg.parts), lsm.pyg\n"
        "assert not hasattr(lsm, 'storage_of')"
    )


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("cli", "reference")])
def test_rooms_name_what_is_public(room):
    module = importlib.import_module(f"lsm.{room}")
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        value = getattr(module, name)
        assert value.__module__.startswith(f"lsm.{room}."), name
        assert inspect.getdoc(value), name
    with pytest.raises(AttributeError, match="nothing"):
        module.nothing  # noqa: B018


def test_the_face_takes_its_names_from_the_rooms():
    """The room of a name of ``lsm`` offers the name, too."""
    for name in PUBLIC - {"train"}:
        value = getattr(lsm, name)
        room = importlib.import_module(".".join(value.__module__.split(".")[:2]))
        assert getattr(room, name) is value
        assert name in room.__all__, room


def public_callables():
    """(name, callable, documentation) of the functions and classes, and of their methods."""
    public = {name: getattr(lsm, name) for name in sorted(PUBLIC - {"train"})}
    public |= {f"pyg.{name}": getattr(lsm.pyg, name) for name in lsm.pyg.__all__}
    for name, value in public.items():
        if not inspect.isclass(value):
            yield name, value, inspect.getdoc(value)
            continue
        own = f"{inspect.getdoc(value)}\n{inspect.getdoc(value.__init__) or ''}"
        if not hasattr(value, "model_fields"):  # options document each field: see below
            yield name, value.__init__, own
        for method, found in inspect.getmembers(value, inspect.isroutine):
            if not callable(found):  # a cached property, which Python 3.13 takes for a routine
                continue
            home = getattr(found, "__module__", None) or ""  # methods of dict have none
            if not method.startswith("_") and home.startswith("lsm."):
                yield f"{name}.{method}", found, f"{own}\n{inspect.getdoc(found) or ''}"


@pytest.mark.parametrize(("name", "function", "documentation"), [*public_callables()])
def test_every_public_callable_is_documented(name, function, documentation):
    """It has a docstring, each parameter is named there, and tensors have a shape."""
    assert inspect.getdoc(function) or "." not in name.removeprefix("pyg."), (
        f"{name} has no docstring"
    )
    words = set(re.findall(r"\w+", documentation))
    signature = inspect.signature(function)
    missing = {
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls") and parameter.name not in words
    }
    assert not missing, f"{name}: {missing} are not explained"
    if re.search(r"\bTensor\b", str(signature.return_annotation)):
        assert re.search(r"\[\w", inspect.getdoc(function)), f"{name}: which shape?"


def test_every_option_is_documented():
    for name in PUBLIC:
        fields = getattr(getattr(lsm, name), "model_fields", {})
        assert [key for key, field in fields.items() if not field.description] == [], name


def test_the_reference_page_documents_exactly_the_public_names():
    """``lsm.train`` is a room that can be called, and the old name of ``lsm.fit``."""
    page = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
    documented = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert len(documented) == page.count(":::")
    public = [f"lsm.{name}" for name in lsm.__all__ if name != "train"]
    public += [f"lsm.embed.{name}" for name in lsm.embed.__all__]
    public += [f"lsm.pyg.{name}" for name in lsm.pyg.__all__]
    assert sorted(documented) == sorted(public)


def test_storage_means_its_options():
    """Wherever a public callable takes ``storage=``. The engine is one of them, and is given there
    only."""
    taken = {
        name: str(inspect.signature(function).parameters["storage"].annotation)
        for name, function, _ in public_callables()
        if "storage" in inspect.signature(function).parameters
    }
    form = "StorageOptions | Mapping[str, Any] | None"
    takers = ("LinkNeighborLoader", "NeighborLoader", "open_features", "pyg.FeatureStore")
    assert taken == dict.fromkeys(takers, form)
    signatures = [inspect.signature(function) for _, function, _ in public_callables()]
    assert not any("engine" in signature.parameters for signature in signatures)


def run(code):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_neither_torch_nor_the_native_module():
    rooms = ", ".join(f"lsm.{room}" for room in ROOMS if room not in ("cli", "reference"))
    run(
        f"import sys, lsm, {rooms}\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'lsm.native', 'lsm._core'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )


def test_the_types_are_shipped():
    folder = Path(lsm.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_core.pyi").exists()


def test_a_batch_says_what_it_carries():
    """The fields of PyG's batches, by name, with shape and dtype."""
    text = inspect.getdoc(lsm.Batch)
    for field in ("x", "y", "n_id", "e_id", "edge_index", "input_id"):
        assert re.search(rf"^ *{field}: \[", text, re.M), field
    assert torch.Tensor.__name__ in str(inspect.signature(lsm.Batch))
