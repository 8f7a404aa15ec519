"""The keys of a configuration by their full names: ``train.eval.batch_size``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from lsm.config.schema import Config
from lsm.core.section import is_section, keys
from lsm.core.suggest import close_keys

logger = logging.getLogger(__name__)

_MOVED = {
    f"sampler.{name}": f"loader.{name}"
    for name in ("num_threads", "prefetch", "max_prefetch", "staging_bytes")
} | {"metrics.tensorboard": "metrics.loggers"}
"""Earlier names of keys. They are read, with a hint."""

_VAGUE = ("bytes", "dir", "mode", "name", "path")
"""Names that say little without their section, so that another section's is no guess."""


@cache
def dotted_keys(model: type[BaseModel] = Config) -> tuple[str, ...]:
    """Every key of the tree by its full name; sections come before their fields."""
    names = []
    for name in keys(model):
        names.append(name)
        annotation = model.model_fields[name].annotation
        if is_section(annotation):
            names += [f"{name}.{inner}" for inner in dotted_keys(annotation)]
    return tuple(names)


def annotation_of(model: type[BaseModel], name: str) -> Any:
    """The type of the field with the full name ``name``."""
    first, _, rest = name.partition(".")
    annotation: Any = model.model_fields[first].annotation
    return annotation_of(annotation, rest) if rest else annotation


def nested(values: dict[Any, Any], flat: Sequence[str] = (), prefix: str = "") -> dict[Any, Any]:
    """``values`` with a section for each key that has a dot: ``{"train.lr": 1}`` becomes
    ``{"train": {"lr": 1}}``. Names within the keys ``flat`` keep their dots. Raises
    KeyError with the full name of a key that is there twice."""
    result: dict[Any, Any] = {}
    for key, value in values.items():
        first, dot, rest = key.partition(".") if isinstance(key, str) else (key, "", "")
        if dot and first and rest:
            _merge(result, first, {rest: value}, prefix)
        else:
            _merge(result, key, value, prefix)
    for key, value in result.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in flat:
            result[key] = nested(value, flat, f"{prefix}{key}.")
    return result


def _merge(result: dict[Any, Any], key: Any, value: Any, prefix: str) -> None:
    """Puts ``value`` at ``key``; merges it with the section there if both are sections."""
    there = result.get(key)
    if there is None:
        result[key] = value
    elif isinstance(there, dict) and (value is None or isinstance(value, dict)):
        repeated = there.keys() & (value or {}).keys()
        if repeated:
            raise KeyError(f"{prefix}{key}.{min(repeated)}")
        result[key] = there | (value or {})
    else:
        raise KeyError(f"{prefix}{key}")


def current_key(model: type[BaseModel], name: str) -> str:
    """The name that the key ``name`` has now. Warns of an earlier one."""
    now = _MOVED.get(name)
    if now is None or now not in dotted_keys(model):
        return name
    logger.warning("the key %s is called %s now; it is read, please change it", name, now)
    return now


def move_keys(model: type[BaseModel], values: dict[Any, Any]) -> dict[Any, Any]:
    """``values`` by section with each key in the section where it is now. Raises ValueError for a
    key that is given by both names."""
    for old in _MOVED:
        section, _, key = old.partition(".")
        there = values.get(section)
        if not isinstance(there, dict) or key not in there:
            continue
        now = current_key(model, old)
        if now == old:
            continue
        section_now, _, key_now = now.partition(".")
        moved = values.get(section_now) or {}
        if not isinstance(moved, dict) or key_now in moved:
            raise ValueError(f"{now}: given twice, as {old} too")
        rest = {name: value for name, value in there.items() if name != key}
        values = values | {section: rest, section_now: moved | {key_now: there[key]}}
    return values


def unknown_key(model: type[BaseModel], name: str) -> str:
    """Error text for an unknown key: the keys that it may be a slip for, else those there are."""
    near = _near(list(dotted_keys(model)), name)
    if near:
        return f"unknown key {name}; did you mean {' or '.join(near)}?"
    section, _, _ = name.rpartition(".")
    inner = annotation_of(model, section) if section in dotted_keys(model) else None
    if is_section(inner):
        return f"unknown key {name}; {section} has {', '.join(keys(inner))}"
    details = "; `lsm train base --explain` describes all keys" if model is Config else ""
    return f"unknown key {name}; the sections are {', '.join(keys(model))}{details}"


def _near(known: list[str], name: str) -> list[str]:
    """A slip within the section that ``name`` names, then the right key of another section, then
    slips in the names of both."""
    section, _, last = name.rpartition(".")
    within = {_last(key): key for key in known if key.rpartition(".")[0] == section}
    if section and (near := close_keys(last, within)):
        return [within[near[0]]]
    same_last = [key for key in known if _last(key) == last]
    if inner := [key for key in same_last if section and key.startswith(f"{section}.")]:
        return inner
    if same_last and not (last in _VAGUE and section):
        depth = min(key.count(".") for key in same_last)
        return [key for key in same_last if key.count(".") == depth]
    if not section:
        lasts = {_last(key): key for key in reversed(known)}
        return [lasts[each] for each in close_keys(last, lasts)[:1]]
    sections = {key.rpartition(".")[0] for key in known} - {""}
    for each in [] if section in sections else close_keys(section, sections):
        if not section.startswith(each):
            within = {_last(key): key for key in known if key.rpartition(".")[0] == each}
            if near := [last] if last in within else close_keys(last, within):
                return [within[near[0]]]
    return []


def _last(key: str) -> str:
    return key.rpartition(".")[2]
