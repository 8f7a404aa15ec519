"""A description of every key of a configuration, for its readers: type, range, default, meaning.

``configs/base.yaml`` and the configuration page of the documentation are generated from it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lsm.config.schema import Config
from lsm.core.limits import LARGEST_COUNT, LARGEST_SEED
from lsm.core.option_types import Described
from lsm.core.section import is_section, keys

_WIDTH = 100
_UNLIMITED = (LARGEST_COUNT, LARGEST_SEED)
"""Upper bounds that guard against overflow only; readers need not know them."""

_NAMES = {int: "integer", float: "number", str: "text", bool: "true or false"}


@dataclass(frozen=True)
class Entry:
    """One key of a configuration, or one section of keys."""

    key: str
    """Full name, such as cache.victim.mode."""
    doc: str
    """Meaning, as one paragraph."""
    is_section: bool = False
    type: str = ""
    """Type and range in words; of a choice, its values."""
    choices: tuple[str, ...] = ()
    """Values of a choice."""
    default: str = ""
    """Default as YAML."""

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def depth(self) -> int:
        """Number of sections around the key."""
        return self.key.count(".")


def entries(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[Entry]:
    """Every section and key of ``model``, in the order of its fields; sections precede keys."""
    defaults = model().model_dump(mode="json")
    for name in keys(model):
        field = model.model_fields[name]
        doc = " ".join((field.description or "").split())
        if is_section(field.annotation):
            yield Entry(prefix + name, doc, is_section=True)
            yield from entries(field.annotation, f"{prefix}{name}.")
            continue
        choices = _choices(field.annotation)
        words = _type_in_words(field.annotation, field.metadata)
        default = yaml.safe_dump(defaults[name], default_flow_style=True, width=1000)
        yield Entry(
            prefix + name,
            doc,
            type=words,
            choices=choices,
            default=default.removesuffix("...\n").strip(),
        )


def commented_yaml(model: type[BaseModel], header: str) -> str:
    """Every key of ``model`` with its default as YAML, below its meaning as a comment."""
    lines = [*_comment(header, 0)]
    for entry in entries(model):
        if entry.depth == 0:
            lines.append("")
        lines += _comment(_with_choices(entry), entry.depth)
        value = "" if entry.is_section else f" {entry.default}"
        lines.append(f"{'  ' * entry.depth}{entry.name}:{value}")
    return "\n".join(lines) + "\n"


def _with_choices(entry: Entry) -> str:
    """The meaning, with the values of a choice that it does not explain."""
    explained = entry.doc.replace(",", " ").replace(".", " ").replace(":", " ").split()
    if all(choice in explained for choice in entry.choices):
        return entry.doc
    return f"{entry.doc} One of {', '.join(entry.choices)}."


def _comment(text: str, depth: int) -> list[str]:
    start = "  " * depth + "# "
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _choices(annotation: Any) -> tuple[str, ...]:
    is_choice = get_origin(annotation) is Literal
    return tuple(str(choice) for choice in get_args(annotation)) if is_choice else ()


def _type_in_words(annotation: Any, metadata: list[Any]) -> str:
    described = [each.text for each in metadata if isinstance(each, Described)]
    if described:
        return described[-1] + _range_in_words(metadata)
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        nested = [each.metadata if isinstance(each, FieldInfo) else [each] for each in members[1:]]
        return _type_in_words(members[0], list(chain.from_iterable(nested)))
    if origin in (Union, UnionType):
        named = [_type_in_words(each, []) for each in members if each is not NoneType]
        return ", or ".join([*named, *(["null"] if NoneType in members else [])])
    if origin is Literal:
        return ", ".join(str(choice) for choice in members)
    if origin is dict:
        return f"mapping; each {_type_in_words(members[1], [])}"
    if origin is list:
        return f"list; each {_type_in_words(members[0], [])}"
    return _NAMES[annotation] + _range_in_words(metadata)


def _range_in_words(metadata: list[Any]) -> str:
    bounds = []
    for bound in metadata:
        if isinstance(bound, Ge):
            bounds.append(f"at least {bound.ge}")
        elif isinstance(bound, Gt):
            bounds.append(f"more than {bound.gt}")
        elif isinstance(bound, Le) and bound.le not in _UNLIMITED:
            bounds.append(f"at most {bound.le}")
        elif isinstance(bound, Lt):
            bounds.append(f"less than {bound.lt}")
    return f", {' and '.join(bounds)}" if bounds else ""
