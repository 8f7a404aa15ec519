"""Commands print news as they are and warnings as such; details on request."""

import logging

import pytest

from lsm.core import terminal_log
from lsm.core.terminal_log import show_log

logger = logging.getLogger("lsm.core.anything")


@pytest.fixture(autouse=True)
def as_before():
    package = logging.getLogger("lsm")
    level, handlers = package.level, list(package.handlers)
    yield
    package.setLevel(level)
    package.handlers[:] = handlers
    terminal_log._HANDLER.rank = None


def said(capsys):
    logger.debug("a detail")
    logger.info("news of %s", "today")
    logger.warning("a remark")
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


@pytest.mark.parametrize(
    ("rank", "verbose", "expected"),
    [
        (None, False, ["news of today", "warning: a remark"]),
        (0, False, ["news of today", "warning: a remark"]),
        (0, True, ["a detail", "news of today", "warning: a remark"]),
        (3, True, ["warning: rank 3: a remark"]),
    ],
)
def test_the_lines_of_a_rank(capsys, rank, verbose, expected):
    show_log()
    show_log(rank, verbose=verbose)
    assert said(capsys) == expected
