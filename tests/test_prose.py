"""Comments and docstrings start with their subject; pages link to files that are there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEADLESS = re.compile(r"(?:What|Where|Whether|Which)\b(?!.*\?)", re.DOTALL)
CLAUSE = re.compile(r"Where\b[^,.:]*,")


def comment_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each run of whole-line comments."""
    first, words = 0, []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.lstrip().startswith("# "):
            first = first if words else number
            words.append(line.lstrip()[2:])
        elif words:
            yield first, " ".join(words)
            words = []


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string that stands as a statement, those of fields too."""
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value


def headless(text: str) -> list[int]:
    """Lines of comments and docstrings that start with a noun clause instead of a subject.

    Questions may start so, and so may a sentence with a clause before its subject: "Where X, Y".
    """
    found = []
    for line, prose in [*comment_blocks(text), *docstrings(text)]:
        start = re.split(r"(?<=[.?])\s", prose.strip(), maxsplit=1)[0]
        if HEADLESS.match(start) and not CLAUSE.match(start):
            found.append(line)
    return sorted(found)


def test_prose_starts_with_its_subject():
    paths = sorted((ROOT / "lsm").rglob("*.py"))
    assert paths
    found = {path.relative_to(ROOT).as_posix(): headless(path.read_text()) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""What a run is read for."""', [1]),
        ('"""Which slot is written, and\nread."""', [1]),
        ("class A:\n    b: int\n    '''Whether it is kept.'''", [3]),
        ("x = 1\n# Where training starts.\n# From here on.", [2]),
        ("# A comment goes on:\n# What is in its second line does not count.", []),
        ("# What does a constant buffer save, and\n# who belongs in it?", []),
        ("# Where O_DIRECT does not work, pages are flushed.", []),
        ('"""True if the first line names the columns."""', []),
        ('x = "What lies here"  # What follows code is left alone', []),
        ('"""Whatever a killed run wrote."""', []),
    ],
)
def test_a_headless_sentence_is_found(text, lines):
    assert headless(text) == lines


NATIVE = ("cache", "comm", "kernels", "tests")
QUOTED = re.compile(r"`+[^`]*`+|\"[^\"]*\"")
WHAT = re.compile(r"\bwhat\b(?!.*\?)", re.IGNORECASE | re.DOTALL)


def native_comments(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each run of whole-line C++ comments, without the line of the licence."""
    lines = [re.sub(r"^(\s*)///? ?", r"\1# ", line) for line in text.splitlines()]
    lines[0] = re.sub(r".*SPDX-License-Identifier.*", "", lines[0])
    yield from comment_blocks("\n".join(lines))


def test_native_comments_start_with_their_subject():
    paths = [path for each in NATIVE for path in sorted((ROOT / each).rglob("*"))]
    paths = [path for path in paths if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    assert len(paths) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in paths
        for line, prose in native_comments(path.read_text())
        for sentence in re.split(r"(?<=[.?])\s", prose)
        if HEADLESS.match(sentence) and not CLAUSE.match(sentence)
    ]
    assert found == []


def test_headings_start_with_their_subject():
    pages = [
        ROOT / "README.md",
        *(p for each in FOLDERS for p in sorted((ROOT / each).rglob("*.md"))),
    ]
    found = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages
        for line in page.read_text().splitlines()
        if line.startswith("#") and HEADLESS.match(line.lstrip("# "))
    ]
    assert found == []


def what_clauses(text: str) -> list[int]:
    """Lines of comments and docstrings with a clause of "what", which stands for a noun."""
    return sorted(
        line
        for line, prose in [*comment_blocks(text), *docstrings(text)]
        if any(WHAT.search(each) for each in re.split(r"(?<=[.?])\s", QUOTED.sub("", prose)))
    )


def test_prose_has_nouns_in_place_of_what():
    paths = sorted((ROOT / "lsm").rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix(): what_clauses(path.read_text()) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Returns what it held."""', [1]),
        ("x = 1\n# One sentence. Keeps what\n# is needed.", [2]),
        ('"""Awaits ``what``, in the words of "what it is"."""', []),
        ("# What does it hold?", []),
        ('x = "what lies here"', []),
    ],
)
def test_a_clause_of_what_is_found(text, lines):
    assert what_clauses(text) == lines


OLD_WORDS = re.compile(r"\b(?:beside|thus|reckon(?:ed|s|ing)?|whilst|hence)\b", re.IGNORECASE)
FOLDERS = ("cache", "comm", "configs", "docs", "examples", "kernels", "launch", "lsm")


def test_prose_has_no_word_that_has_a_plainer_one():
    """ "next to", "so" and "planned" stand for them, in code, pages and configurations."""
    suffixes = {".py", ".h", ".cpp", ".cu", ".md", ".yaml", ".sh"}
    paths = [path for each in FOLDERS for path in sorted((ROOT / each).rglob("*"))]
    paths = [path for path in [*paths, ROOT / "README.md"] if path.suffix in suffixes]
    assert len(paths) > 700
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if OLD_WORDS.search(line)
    ]
    assert found == []


LINK = re.compile(r"\]\(([^)\s#]+)")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def test_links_between_pages_lead_to_files():
    """As the pages lie in the repository; the builder of the site checks those of the site."""
    folders = [ROOT / name for name in ("docs", "bench", "kernels", "tests")]
    pages = [*ROOT.glob("*.md"), *(path for each in folders for path in each.rglob("*.md"))]
    assert len(pages) > 30
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(CODE.sub("", page.read_text()))
        if ":" not in target and not (page.parent / target).exists()
    ]
    assert dead == []
