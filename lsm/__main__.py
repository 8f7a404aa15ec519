"""``python -m lsm``: the same as the ``lsm`` command."""

from lsm.cli import main

if __name__ == "__main__":
    main()
