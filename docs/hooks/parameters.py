"""A griffe extension: a docstring's paragraph of "name: meaning" becomes a list of parameters."""

from __future__ import annotations

import re

import griffe


class Parameters(griffe.Extension):
    """Lists the parameters and fields that a docstring names, each in a line of its own."""

    def on_class(self, *, cls: griffe.Class, **_context) -> None:
        fields = [name for name, member in cls.members.items() if member.is_attribute]
        _list(cls, [*(parameter.name for parameter in cls.parameters), *fields])

    def on_function(self, *, func: griffe.Function, **_context) -> None:
        _list(func, [parameter.name for parameter in func.parameters])


def _list(owner: griffe.Object, names: list[str]) -> None:
    if owner.docstring is None or not names:
        return
    name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    start = re.compile(rf"(?:^|(?<=[.;)] )|(?<=[.;)]\n)|(?<=\n))((?:{name})(?:, (?:{name}))*): ")
    paragraphs = owner.docstring.value.split("\n\n")
    owner.docstring.value = "\n\n".join(_listed(text, start) for text in paragraphs)


def _listed(paragraph: str, start: re.Pattern[str]) -> str:
    before, *parts = start.split(paragraph)
    if len(parts) < 4:  # one name may be any sentence
        return paragraph
    meanings = zip(parts[::2], parts[1::2], strict=True)
    items = (f"- **{names}**: {' '.join(meaning.split())}" for names, meaning in meanings)
    return "\n".join([*([before.strip(), ""] if before.strip() else []), *items])
