"""Configurations and launch scripts are found in a checkout and in an installed package."""

import re
import shutil
from pathlib import Path

import pytest

from lsm.core.shipped import shipped_folder
from support.another_package import run_from
from support.store_files import REPOSITORY


def test_a_checkout_has_its_own():
    assert shipped_folder("configs") == REPOSITORY / "configs"
    assert shipped_folder("launch") == REPOSITORY / "launch"


@pytest.fixture
def installed(tmp_path):
    """The package as a wheel installs it: without the repository around it."""
    target = tmp_path / "site-packages"
    shutil.copytree(
        REPOSITORY / "lsm", target / "lsm", ignore=shutil.ignore_patterns("__pycache__")
    )
    rule = re.search(
        r"install\(DIRECTORY ([\w ]+) DESTINATION (\S+)",
        (REPOSITORY / "CMakeLists.txt").read_text(),
    )
    for folder in rule[1].split():
        shutil.copytree(REPOSITORY / folder, target / rule[2] / folder)
    return target


def run(installed, *arguments):
    return run_from([installed], *arguments, cwd=installed.parent, env={"PATH": "/usr/bin:/bin"})


@pytest.mark.slow
def test_an_installed_package_finds_every_configuration(installed):
    for file in sorted((REPOSITORY / "configs").glob("*.yaml")):
        done = run(installed, "train", file.stem, "--print-config")
        assert done.returncode == 0, done.stderr


def test_an_installed_package_says_where_its_launch_scripts_are(installed):
    done = run(installed, "launch-dir")
    folder = Path(done.stdout.strip())
    assert folder.is_relative_to(installed), done
    for file in (REPOSITORY / "launch").iterdir():
        assert (folder / file.name).read_text() == file.read_text()
        assert (folder / file.name).stat().st_mode & 0o111 == file.stat().st_mode & 0o111
