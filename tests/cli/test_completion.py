"""Completion by the shell, which must answer at once."""

import subprocess
import sys

import pytest

from support.training import REPOSITORY, environment

SCRIPT = """
import sys
sys.argv = ["lsm", *sys.argv[1:]]
from lsm.__main__ import main
try:
    main()
finally:
    assert not {"torch", "numpy"} & set(sys.modules)
"""


def run(*arguments, **changes):
    # Typer would look at the processes above this one for a shell.
    changes["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=environment(**changes),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("lsm train qui", "quickstart"),
        ("lsm train no-such", ""),
        ("lsm embed train wn", "wn18rr"),
        ("lsm ablate ev", "eviction"),
        ("lsm data ve", "verify"),
        ("lsm doctor --js", "--json"),
    ],
)
def test_names_are_completed_without_torch(line, names):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    result = run(_LSM_COMPLETE="complete_bash", **words)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, names, "")


def test_the_script_of_a_shell_completes_lsm():
    result = run("--show-completion", "bash")
    assert result.returncode == 0, result.stderr
    assert "_LSM_COMPLETE=complete_bash" in result.stdout
    assert result.stdout.rstrip().endswith(" lsm")
