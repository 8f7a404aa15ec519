"""Adds pages that live outside of docs/: those next to the code, and references made
from the code. A page asks for the latter by a comment: ``<!-- options MODULE:CLASS -->`` for
the keys of a configuration, ``<!-- help COMMAND ... -->`` for a help page of ``lsm``.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[2]
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
# In the repository docs/ is a folder; in the site its pages lie next to those of PAGES.
LINK_OUT_OF_DOCS = re.compile(r"\]\(\.\./((?:\.\./)*(?:bench|kernels|tests)/)")


def on_files(files, config):
    for pattern in PAGES:
        for path in sorted(REPOSITORY.glob(pattern)):
            name = str(path.relative_to(REPOSITORY))
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page, **_context) -> str:
    if (REPOSITORY / "docs" / page.file.src_uri).exists():
        markdown = LINK_OUT_OF_DOCS.sub(r"](\1", markdown)
    markdown = re.sub(r"<!-- options (\S+) -->", lambda match: options_page(match[1]), markdown)
    return re.sub(r"<!-- help ([\w -]*?) ?-->", lambda match: help_page(match[1]), markdown)


def options_page(name: str) -> str:
    """Sections and keys of a configuration, with types, defaults and meaning."""
    from lsm.config.reference import entries

    module, _, model = name.partition(":")
    paragraphs: list[str] = []
    for entry in entries(getattr(importlib.import_module(module), model)):
        if entry.is_section:
            paragraphs += [f"{'#' * (entry.depth + 2)} {entry.key}", entry.doc]
            continue
        choices = ", ".join(f"`{choice}`" for choice in entry.choices)
        paragraphs.append(f"### `{entry.key}`")
        paragraphs.append(f"{choices or entry.type}; default `{entry.default}`\n{{ .values }}")
        paragraphs.append(entry.doc)
    return "\n\n".join(paragraphs)


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
