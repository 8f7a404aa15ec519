"""Reads a configuration from YAML and ``key=value`` overrides; every error names the full key.

``lsm train`` reads a ``schema.Config``; the same rules hold for any other tree of sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from lsm.config.keys import annotation_of, current_key, dotted_keys, move_keys, nested, unknown_key
from lsm.config.schema import Config
from lsm.core.arguments import as_path
from lsm.core.section import FLOATS, INTS, is_section, keys, wrong_values_named
from lsm.core.shipped import shipped_folder
from lsm.run.options import default_run_dir

Tree = TypeVar("Tree", bound=BaseModel)

# Characters of a wrong value that an error repeats.
_SHOWN = 60


# Kinds of scalars that YAML 1.2 spells otherwise, or does not have.
_OF_YAML_1_1 = ("bool", "float", "int", "timestamp", "value")


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars (``1e-3`` is a number, ``010`` is ten; ``on``, ``1:30`` and ``2026-01-31``
    are text); a repeated key, or a section that contains itself, is an error."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (overrides an attribute of the base class)
        first: [entry for entry in entries if entry[0].rpartition(":")[2] not in _OF_YAML_1_1]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # else an anchor could be used inside its own section

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = [key for key in keys if keys.count(key) > 1]
        if repeated:
            line = node.start_mark.line + 1
            raise ValueError(f"key {repeated[0]!r} appears twice in the section at line {line}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(*INTS)
_Loader.add_implicit_resolver(*FLOATS)
_Loader.add_constructor(
    INTS[0], lambda _, node: int(node.value, 0 if re.search("[bx]", node.value) else 10)
)


def load_config(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a configuration from a YAML file.

    Keys that neither the file nor an override mentions have their defaults; run.dir is then named
    after the file and the store.

    Args:
        name_or_path: A file, or the name of one in ``configs/`` (``quickstart``).
        overrides: ``key=value`` each, applied in order.

    Returns:
        The configuration, checked.

    Raises:
        ValueError: A key is unknown, or its value has a wrong type or is out of range. The error
            names the full key.
        OSError: The file cannot be read.
    """
    path = find_config(name_or_path)
    config = load_tree(Config, path, overrides)
    if config.run.dir is None and config.data.path is not None:
        run_dir = default_run_dir(path.stem, config.data.path)
        run = config.run.model_copy(update={"dir": run_dir})
        return config.model_copy(update={"run": run})
    return config


def load_tree(model: type[Tree], path: Path, overrides: Sequence[str] = ()) -> Tree:
    """A configuration of type ``model`` from the file ``path``, as ``load_config`` does it."""
    if isinstance(overrides, str | Mapping):
        raise TypeError(
            f'overrides: expected a list, such as ["train.epochs=5"], got {overrides!r:.{_SHOWN}}'
        )
    values = move_keys(model, _nested_of(model, path))
    _check_keys(model, values, source=str(path))
    for override in overrides:
        _apply(model, values, override)
    return parse_config(values, model)


def parse_config(values: dict[str, Any], model: type[Tree] = Config) -> Tree:  # type: ignore[assignment]
    """A checked ``Config`` from nested values; ValueError lists each wrong key on a line."""
    values = move_keys(model, values)
    _check_keys(model, values, source="config")
    with wrong_values_named():
        return model.model_validate(values)


def check_config(config: object, model: type[Tree], load: str) -> None:
    """Raises TypeError if ``config`` is no ``model``, which the function ``load`` reads."""
    if not isinstance(config, model):
        raise TypeError(
            f"config: expected the result of {load}(name, overrides), got {type(config).__name__}"
        )


def find_config(name_or_path: str | Path, subfolder: str = "") -> Path:
    """The file meant by a path, or by the name of a file in ``configs/`` (or a subfolder of it)."""
    path = as_path("config", name_or_path)
    if path.is_file():
        return path
    folders = [folder / subfolder for folder in (Path("configs"), shipped_folder("configs"))]
    if path.name == str(name_or_path):
        for folder in folders:
            candidate = folder / f"{path.name.removesuffix('.yaml')}.yaml"
            if candidate.is_file():
                return candidate
    known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
    raise FileNotFoundError(
        f"config {str(name_or_path)!r} is neither a file nor one of: {', '.join(known) or '(none)'}"
    )


_OF_EACH_RANK = ("data.path", "data.links", "data.features", "run.dir", "storage.devices")


def shared_settings(config: BaseModel) -> dict[str, Any]:
    """Settings that all ranks of a job must share, by full key: all but paths and drives, which
    may differ from machine to machine."""
    tree = config.model_dump(mode="json")
    return {
        key: reduce(getitem, key.split("."), tree)
        for key in dotted_keys(type(config))
        if key not in _OF_EACH_RANK and not is_section(annotation_of(type(config), key))
    }


def changed_keys(section: BaseModel, prefix: str = "") -> list[str]:
    """The keys of ``section`` whose values are not the defaults, each with ``prefix``."""
    changed = []
    for name in keys(type(section)):
        value, field = getattr(section, name), type(section).model_fields[name]
        if isinstance(value, BaseModel):
            changed += changed_keys(value, f"{prefix}{name}.")
        elif value != field.get_default(call_default_factory=True):
            changed.append(prefix + name)
    return changed


def _kinds(annotation: Any) -> set[Any]:
    """The classes of the values of a field of this type: str, list, NoneType, ..."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kinds(members[0])
    if origin in (Union, UnionType):
        return set().union(*map(_kinds, members))
    return {type(choice) for choice in members} if origin is Literal else {origin or annotation}


def _mappings(model: type[BaseModel]) -> list[str]:
    """The keys that take a mapping."""
    return [key for key in dotted_keys(model) if _kinds(annotation_of(model, key)) == {dict}]


def _flat_mappings(model: type[BaseModel]) -> list[str]:
    """Those of names, which may have dots, to values of one type."""
    return [key for key in _mappings(model) if get_args(annotation_of(model, key))[1] is not Any]


def _nested_of(model: type[BaseModel], path: Path) -> dict[str, Any]:
    try:
        return nested(_read_yaml(path), _flat_mappings(model))
    except KeyError as error:
        raise ValueError(
            f"{path}: {error.args[0]} is given twice, in a section and by its full name"
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = _parse(path.read_text())
    except (yaml.YAMLError, ValueError) as error:  # ValueError: also a date or an encoding
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected sections with keys, got {type(values).__name__}")
    return values


def _parse(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _parse_override(name: str, text: str) -> Any:
    try:
        return _parse(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = getattr(error, "problem", error)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ValueError(f"{name}: {shown!r} is not a YAML value: {reason}") from None


def _check_keys(
    model: type[BaseModel], values: dict[Any, Any], source: str, prefix: str = ""
) -> None:
    """Raises ValueError for the first unknown key, and for a section that is not a mapping."""
    known = set(dotted_keys(model))
    sections = {key.rpartition(".")[0] for key in known}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name not in known:
            raise ValueError(f"{source}: {unknown_key(model, name)}")
        if name in sections:
            if value is None:  # a section whose keys are all commented out
                values[key] = value = {}
            if not isinstance(value, dict):
                raise ValueError(f"{name}: expected a section with keys, got {value!r}")
            _check_keys(model, value, source, f"{name}.")


def _apply(model: type[BaseModel], values: dict[str, Any], override: str) -> None:
    """Sets one dotted key of ``values`` from ``key=value``: text as it is where the key takes text,
    else a YAML scalar, list or mapping. A list needs no brackets. A key may name one entry of a
    mapping."""
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ValueError(f"override {override!r}: expected key=value, such as train.epochs=5")
    name = current_key(model, name)
    mapping = next((key for key in _mappings(model) if name.startswith(f"{key}.")), None)
    if mapping is None and name not in set(dotted_keys(model)):
        raise ValueError(unknown_key(model, name))
    kinds = _kinds(annotation_of(model, name) if mapping is None else Any)
    if kinds - {NoneType} == {str}:
        value = None if NoneType in kinds and text in ("", "null") else text
    else:
        value = _parse_override(name, text)
        if isinstance(value, str) and kinds - {NoneType} == {list}:
            value = _parse_override(name, f"[{value}]")
    *sections, key = name.split(".")
    if mapping is not None and mapping in _flat_mappings(model):
        sections, key = mapping.split("."), name.removeprefix(f"{mapping}.")
    for section in sections:
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            raise ValueError(f"{name}: expected a mapping at {section}, got {values!r}")
    values[key] = value
