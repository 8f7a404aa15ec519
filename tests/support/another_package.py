"""Runs the command line of a package in another folder than the one that the tests import."""

import subprocess
import sys

# An editable install finds its modules before any folder of sys.path does.
CODE = """
import sys
sys.meta_path[:] = [
    finder for finder in sys.meta_path if "editable" not in type(finder).__module__
]
sys.path[:0] = {folders!r}
from lsm.cli import main
main()
"""


def run_from(folders, *arguments, **options):
    """The completed ``lsm`` with ``arguments``; the first of ``folders`` with a package counts."""
    code = CODE.format(folders=[str(folder) for folder in folders])
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
