"""Adds pages that live outside of docs/: those beside the code, and references made
from the code. A page asks for the latter by a comment: ``<!-- options MODULE:CLASS -->`` for
the keys of a configuration, ``<!-- help COMMAND ... -->`` for a help page of ``lsm``.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[2]
LARGEST = 2**31 - 1  # a bound that is there for the type alone
PAGES = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench/ablation.md",
    "bench/results/*.md",
    "bench/results/*/*.png",
    "kernels/README.md",
    "kernels/io/nvme/README.md",
    "tests/emulated/README.md",
)


def on_files(files, config):
    for pattern in PAGES:
        for path in sorted(REPOSITORY.glob(pattern)):
            name = str(path.relative_to(REPOSITORY))
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_context) -> str:
    markdown = re.sub(r"<!-- options (\S+) -->", lambda match: options_page(match[1]), markdown)
    return re.sub(r"<!-- help ([\w -]*?) ?-->", lambda match: help_page(match[1]), markdown)


def options_page(name: str) -> str:
    """Sections and keys of a tree of pydantic models, with types, defaults and docstrings."""
    module, _, name = name.partition(":")
    model = getattr(importlib.import_module(module), name)
    schema = model.model_json_schema()
    return "\n\n".join(_section(schema, schema["$defs"], model().model_dump(mode="json"), ""))


def _section(
    schema: dict[str, Any], models: dict[str, Any], defaults: dict[str, Any], prefix: str
) -> Iterator[str]:
    for key, field in schema["properties"].items():
        name, text = prefix + key, field.get("description", "").replace("\n", " ")
        default, model = defaults[key], models.get(field.get("$ref", "").rpartition("/")[2])
        if model is None:
            default = default if isinstance(default, str) else json.dumps(default)
            yield f"### `{name}`"
            yield f"{_type(field, 'bytes' in name)}; default `{default}`\n{{ .values }}"
            yield text
        else:
            yield f"### {name}" if prefix else f"## {name}"
            yield text
            yield from _section(model, models, default, f"{name}.")


def _type(field: dict[str, Any], is_size: bool) -> str:
    """The values that a field takes, in words."""
    if "anyOf" in field:
        members = (_type(member, is_size) for member in field["anyOf"])
        return " or ".join(dict.fromkeys(members))
    if "enum" in field or "const" in field:
        choices = field.get("enum", [field.get("const")])
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), is_size)}"
    if field.get("type") == "null":
        return "`null`"
    names = {"integer": "integer", "number": "number", "boolean": "`true` or `false`"}
    text = "size" if is_size else names.get(field.get("type", ""), "text")
    bounds = [
        f"{words} {field[bound]:,}"
        for bound, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if abs(field.get(bound, LARGEST)) < LARGEST
    ]
    return f"{text} ({', '.join(bounds)})" if bounds else text


def help_page(path: str) -> str:
    """The help page of ``lsm PATH``, 80 columns wide, as a block of code."""
    import typer

    cli = importlib.import_module("lsm.cli")
    command = typer.main.get_command(cli.app)
    context = typer.Context(command, info_name="lsm", max_content_width=80, terminal_width=80)
    for name in path.split():
        command = command.commands[name]
        context = typer.Context(command, info_name=name, parent=context)
    return f"```text\n{command.get_help(context)}\n```"
