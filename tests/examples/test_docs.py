"""The documentation is true of the code: its Python runs, and lsm takes its commands."""

import re
import shlex
import shutil
import textwrap
from pathlib import Path

import pytest
import typer
import yaml

from lsm.cli import app
from lsm.config.load import load_config
from lsm.config.reference import entries
from lsm.config.schema import Config
from lsm.embed.config import load_embed_config

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")]
PAGES += sorted((REPOSITORY / "docs").rglob("*.md"))


def named(page):
    return str(page.relative_to(REPOSITORY)) if isinstance(page, Path) else page


def blocks(page, language):
    """The fenced blocks of ``language``; not those that include a file, which has a test."""
    fence = re.compile(rf"^ *```{language}\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    found = [textwrap.dedent(text) for text in fence.findall(page.read_text())]
    return [text for text in found if "--8<--" not in text]


def commands(page):
    """The lines of shell on a page, in fences or indented, without the comments behind them."""
    indented = re.findall(r"^ {4}((?:lsm|launch)\b.*)", page.read_text(), re.MULTILINE)
    text = "\n".join([*blocks(page, "sh"), *indented]).replace("\\\n", " ")
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    return [line for line in dict.fromkeys(lines) if line and "..." not in line]


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
COMMANDS = [(page, line) for page in PAGES for line in commands(page)]
OF_LSM = [(page, line) for page, line in COMMANDS if line.startswith("lsm ")]
OF_LAUNCH = [(page, line) for page, line in COMMANDS if "launch/" in line]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_python_blocks_run_in_order(page, example_arrays, example_store, run_python, tmp_path):
    shutil.copytree(example_arrays, tmp_path / "my-graph")
    (tmp_path / "stores").mkdir()
    (tmp_path / "stores" / "my-graph").symlink_to(example_store)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")))
    run_python(script, cwd=tmp_path)


def check_config(name, overrides):
    """Raises ValueError for a key or a value that there is not."""
    load_config(name if (REPOSITORY / f"configs/{name}.yaml").exists() else "base", overrides)


@pytest.mark.parametrize(("page", "line"), OF_LSM, ids=named)
def test_lsm_takes_the_command(page, line):
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    given = command.make_context(command.name, words).params
    if line.startswith("lsm embed train"):
        load_embed_config(given["config"], given["overrides"] or [])
    elif command.name == "train":
        check_config(given["config"], given["overrides"] or [])


@pytest.mark.parametrize(("page", "line"), OF_LAUNCH, ids=named)
def test_launch_scripts_get_a_configuration(page, line):
    words = shlex.split(line)
    script = next(word for word in words if word.startswith("launch/"))
    assert (REPOSITORY / script).exists()
    arguments = words[words.index(script) + 1 :]
    config, *overrides = arguments if script.endswith(".sbatch") else arguments[1:]
    check_config(config, overrides)


TOP_LEVEL = "bench|cache|comm|configs|docs|examples|kernels|launch|lsm|tests"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_named_files_exist(page):
    names = re.findall(rf"(?<![\w/.])(?:{TOP_LEVEL})/[\w./*-]*[\w*]", page.read_text())
    built = ("lsm/_core",)  # by make
    missing = [name for name in names if not any(REPOSITORY.glob(name))]
    assert [name for name in missing if not name.startswith(built)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_named_targets_of_make_exist(page):
    makefile = (REPOSITORY / "Makefile").read_text()
    code = re.findall(r"`(make [^`]*)`|^ *(make [^#`\n]*)", page.read_text(), re.MULTILINE)
    words = [word for pair in code for word in "".join(pair).split()[1:]]
    targets = {word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_keys_that_people_set_have_their_defaults():
    page = (REPOSITORY / "docs" / "reference" / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \|", page, re.MULTILINE))
    defaults = {entry.key: str(entry.default) for entry in entries(Config)}
    assert len(rows) == 10
    assert rows == {key: defaults.get(key) for key in rows}


def test_search_works_on_pages_opened_as_files():
    settings = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    plugins = [next(iter(p)) if isinstance(p, dict) else p for p in settings["plugins"]]
    assert plugins.index("search") < plugins.index("offline")
    # Unless a script has this name, the plugin links to one on another host.
    [script] = [name for name in settings["extra"]["polyfills"] if "iframe-worker" in name]
    assert "window.Worker = " in (REPOSITORY / "docs" / script).read_text()


def test_the_checks_see_what_they_are_for():
    assert len(WITH_PYTHON) >= 4
    assert len(OF_LSM) >= 20
    assert len(OF_LAUNCH) >= 4


@pytest.mark.parametrize("line", ["lsm train base train.batch=3", "lsm data info x --yaml"])
def test_a_wrong_command_fails(line):
    with pytest.raises(Exception, match=r"train\.batch_size|--yaml"):
        test_lsm_takes_the_command(None, line)
