"""Tries the parts that every training needs."""

from __future__ import annotations

import importlib
import platform
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from lsm.core.os_error import in_words
from lsm.doctor.finding import Finding

_PACKAGES = ("numpy", "pydantic", "yaml", "torch", "torch_geometric")


def examine_requirements(path: Path | None) -> list[Finding]:
    """The findings up to the first missing part, because each part needs the one before. ``path``:
    a store; None: the working directory, which need not be one."""
    findings: list[Finding] = []
    for probe in (_temporary_files, _packages, _native_module, lambda: _store(path)):
        findings.append(probe())
        if findings[-1].state == "no":
            break
    return findings


def _temporary_files() -> Finding:
    """torch_geometric needs a folder for temporary files at its import."""
    name = "temporary files"
    try:
        with tempfile.TemporaryFile():
            return Finding(name, "ok", f"in {tempfile.gettempdir()}")
    except OSError as error:
        reason = error.strerror or error
        detail = f"none can be made: {reason}; set TMPDIR to a folder that can be written"
        return Finding(name, "no", detail)


def _packages() -> Finding:
    for package in _PACKAGES:
        try:
            importlib.import_module(package)
        except Exception as error:  # a damaged package raises anything
            said = str(error).partition("\n")[0]
            detail = f"{package} cannot be imported ({type(error).__name__}: {said}); install it"
            return Finding("packages", "no", detail)
    return Finding("packages", "ok", ", ".join(_PACKAGES))


def _native_module() -> Finding:
    name = "native module"
    try:
        from lsm import native
    except (RuntimeError, ImportError) as error:
        other = _module_of_another_python()
        return Finding(name, "no", f"{error}{'; there is ' + other if other else ''}")
    except AttributeError as error:
        return Finding(name, "no", f"older than the Python code ({error}): run `make build` again")
    info = native.build_info()
    return Finding(name, "ok", f"{info['compiler']}, {info['build_type']}")


def _module_of_another_python() -> str:
    """The file of a native module that this Python does not load; "" without one."""
    folder = Path(__file__).resolve().parents[1]
    loaded = {f"_core{suffix}" for suffix in EXTENSION_SUFFIXES}
    others = sorted(file.name for file in folder.glob("_core*.so") if file.name not in loaded)
    return f"{others[0]}, of a Python other than {platform.python_version()}" if others else ""


def _store(path: Path | None) -> Finding:
    from lsm.data import format as layout
    from lsm.data.graph_store import GraphStore
    from lsm.data.triples.store import TripleStore

    name = "store"
    place = Path() if path is None else path
    if path is None and not (place / layout.META).exists() and not any(place.glob("features*.bin")):
        return Finding(name, "info", "none given, and none here: `lsm doctor STORE` checks one")
    try:
        if layout.store_kind(place) == "triples":
            triples = TripleStore.open(place)
            return Finding(name, "ok", f"{triples.name}, {triples.num_entities:,} entities")
        store = GraphStore.open(place)
    except (OSError, ValueError, RuntimeError) as error:
        return Finding(name, "no", in_words(error))
    return Finding(name, "ok", f"{store.name}, {store.num_nodes:,} nodes")
