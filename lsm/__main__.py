"""The ``lsm`` command; also ``python -m lsm``."""

from lsm.distributed.interrupt import watch

watch()  # before the imports, which take most of a command's first second

from lsm.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
