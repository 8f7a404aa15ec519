"""The base of every section of a configuration: a component's options, declared once.

A component declares a class of its own (``lsm.cache.options.CacheOptions``). Python callers
construct it, YAML files and ``key=value`` overrides fill it, and the component reads its fields.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any, ClassVar, Self, TypeGuard

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from lsm.core.suggest import unknown_argument

_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text (in a file, quotes make it that)",
    "string_too_short": "text of at least {min_length} character(s)",
    "bool_type": "true or false",
    "list_type": "a list, such as [10, 5]",
    "dict_type": "a mapping, such as {{name: value}}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} value(s)",
    "literal_error": "one of {expected}",
}


class Section(BaseModel):
    """Options of one component, checked at construction and immutable.

    Unknown keys and values of another type are errors; nothing is converted. A subclass sets its
    ``section``, the prefix of keys in error messages. A field with ``exclude=True`` is for Python
    callers only: configuration files neither set nor show it.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # of the arguments of the user's classes
        use_attribute_docstrings=True,
    )

    section: ClassVar[str] = ""

    def __init__(self, *values: Any, **options: Any) -> None:
        """Checks the options. NumPy integers, paths and tuples count as integers, text and lists,
        in lists and dicts, too.

        Args:
            *values: The first fields, in their order.
            **options: Fields by name. A field of a nested section has a flat name, too:
                ``victim_bytes=4096`` for ``victim={"bytes": 4096}``.

        Raises:
            ValueError: Values are wrong; the error names the full key of each.
            TypeError: A name is unknown or given twice, or there are too many ``values``.
        """
        fields = type(self).model_fields
        if len(values) > len(fields):
            raise TypeError(f"{type(self).__name__}: expected at most {len(fields)} values")
        given = dict(zip(fields, map(_plain, values), strict=False))
        for name in sorted(options, key=lambda name: name not in fields):  # flat names last
            self._place(given, name, _plain(options[name]))
        with wrong_values_named(type(self).section):
            super().__init__(**given)

    # pydantic builds nested sections without __init__, so their errors keep their full keys.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def of_argument(cls, name: str, value: Any) -> Self | None:
        """Returns the options that an argument of a function gives.

        Args:
            name: Name of the argument.
            value: A section, a mapping of its fields, or None.

        Returns:
            The section; None for None.

        Raises:
            TypeError: ``value`` is anything else, or a field is unknown.
            ValueError: A field has a wrong value.
        """
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls(**value)
        raise TypeError(
            f"{name}: expected a lsm.{cls.__name__}, or a dict of its fields such as "
            f"{{'{next(iter(cls.model_fields))}': ...}}, got {value!r}"
        )

    @classmethod
    def _place(cls, given: dict[str, Any], name: str, value: Any) -> None:
        """Puts a keyword argument into its (nested) place in ``given``."""
        if name in given:
            raise TypeError(f"{cls.__name__}: {name} is given twice")
        if name in cls.model_fields:
            given[name] = value
            return
        for outer, inner, path in _flat_names(cls):
            if path == name:
                nested = given.setdefault(outer, {})
                if not isinstance(nested, dict):
                    raise TypeError(f"{cls.__name__}: give either {outer} or {name}")
                if inner in nested:
                    raise TypeError(f"{cls.__name__}: {name} is given twice")
                nested[inner] = value
                return
        known = [*cls.model_fields, *(path for _, _, path in _flat_names(cls))]
        raise unknown_argument(cls.__name__, name, known, "option")


def is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """True if a field of this type is a nested section."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def keys(model: type[BaseModel]) -> list[str]:
    """The fields of ``model`` that configuration files set, in their order."""
    return [name for name, field in model.model_fields.items() if not field.exclude]


@contextmanager
def wrong_values_named(section: str = "") -> Iterator[None]:
    """A context in which a model that refuses values raises ValueError with a line for each: its
    full key, the expectation and the value."""
    try:
        yield
    except ValidationError as error:
        lines = dict.fromkeys(_describe(detail, section) for detail in error.errors())
        raise ValueError("\n".join(lines)) from None


def _describe(detail: ErrorDetails, section: str) -> str:
    message = detail["msg"].removeprefix("Value error, ")
    name = ".".join(str(part) for part in (*filter(None, [section]), *detail["loc"]))
    is_of_section = detail["type"] == "value_error" and not name.count(".")
    if is_of_section:  # a check of several fields names its keys itself
        return message
    if detail["type"] == "extra_forbidden":
        return f"{name}: there is no such option"
    expected = _EXPECTED.get(detail["type"])
    if expected is None:
        return f"{name}: {message}"
    return f"{name}: expected {expected.format(**detail.get('ctx', {}))}, got {detail['input']!r}"


def _flat_names(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """For each field of a nested section: (section, field, flat name of both)."""
    for outer, field in model.model_fields.items():
        section = field.annotation
        if is_section(section):
            for inner in section.model_fields:
                yield outer, inner, f"{outer}_{inner}"


def _plain(value: Any) -> Any:
    if not isinstance(value, bool) and isinstance(value, Integral):
        return int(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.2 reads as a number, too."""


FLOATS = (
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?$|[-+]?[0-9]+[eE][-+]?[0-9]+$"
        r"|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)
"""Numbers of YAML 1.2 as PyYAML resolves them: tag, pattern, first characters."""

INTS = (
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?([0-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
"""Integers, likewise: ``010`` is ten, and ``089`` is a number, unlike in YAML 1.1."""

_Dumper.add_implicit_resolver(*FLOATS)
_Dumper.add_implicit_resolver(*INTS)


def dump_config(config: BaseModel) -> str:
    """``config`` as YAML, every key included; ``load_config`` reads it back unchanged."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False)
