"""The ``lsm`` command. Modules of sub-commands import torch and the rest of the package only inside
their functions, so that ``lsm --help`` answers at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
import warnings
from typing import Annotated, Any

import typer
import typer.core

from lsm.cli import bench, data, embed
from lsm.cli.ablate import ablate
from lsm.cli.doctor import doctor
from lsm.cli.plot import plot
from lsm.cli.predict import predict
from lsm.cli.trace import trace
from lsm.cli.train import train
from lsm.core.os_error import in_words
from lsm.core.shipped import shipped_folder
from lsm.core.terminal_log import show_log
from lsm.distributed import signals
from lsm.distributed.environment import rank_in
from lsm.distributed.interrupt import EXIT_INTERRUPTED
from lsm.distributed.signals import Stopped, exit_status
from lsm.version import __version__

# Delay of an error that another rank probably explains better. torchrun ends all ranks as soon as
# one has ended, so the delayed error is usually never printed.
_COMMON_ERROR_SECS = 2.0
_PEER_ERROR_SECS = 5.0

_NO_MEMORY = (
    "out of memory; make loader.staging_bytes, cache.bytes, cache.window, train.batch_size or "
    "sampler.num_neighbors smaller, or use fewer ranks"
)


class _InterruptedError(Exception):
    """Ctrl-C, in a form that typer passes on."""


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise _InterruptedError(*interrupt.args) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # its tables cut words short at 80 columns
    pretty_exceptions_enable=False,
    help="Train graph neural networks on graphs whose features do not fit in memory.",
)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.add_typer(embed.app, name="embed")
app.command("train")(train)
app.command("predict")(predict)
app.command("plot")(plot)
app.command("trace")(trace)
app.command("ablate")(ablate)
app.command("doctor")(doctor)


@app.command("launch-dir")
def launch_dir() -> None:
    """Print the folder that holds the launch scripts for torchrun, SLURM and MPI."""
    typer.echo(shipped_folder("launch"))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lsm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line. Each failure prints one line: bad input or an unsuitable environment
    exits with 1, a run that a signal stopped with EXIT_STOPPED, Ctrl-C with EXIT_INTERRUPTED."""
    atexit.register(_exempt_from_garbage)
    rank = rank_in()
    show_log(rank)
    # torch 2.14 warns of calls that PyG makes as it is imported.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    try:
        app(prog_name="lsm")  # completion is of that name, also of `python -m lsm`
    except Stopped as stopped:
        if rank in (None, 0):
            print(f"lsm: {stopped}", file=sys.stderr)
        _leave(exit_status())
    except _InterruptedError as interrupt:
        if rank in (None, 0):
            print("; ".join(("lsm: interrupted", *map(str, interrupt.args))), file=sys.stderr)
        _leave(EXIT_INTERRUPTED)  # without waiting for threads
    except MemoryError as error:
        _end(RuntimeError(f"{_NO_MEMORY} ({error})" if str(error) else _NO_MEMORY), rank)
    except (ValueError, RuntimeError, OSError) as error:  # TimeoutError is an OSError
        _end(error, rank)


def _exempt_from_garbage() -> None:
    """Else the interpreter searches all objects of torch for garbage, for a second, when it ends.
    nanobind, in triton from 3.9 on, would report these objects as leaks."""
    if not any(each.__module__ == "nanobind" for each in type.__subclasses__(type)):
        gc.freeze()


def _end(error: Exception, rank: int | None) -> None:
    _report(error, rank)
    if rank is not None:
        _leave(1)
    sys.exit(1)


def _leave(status: int) -> None:
    """Ends the process at once: unwinding a job whose ranks end may wait for them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _report(error: Exception, rank: int | None) -> None:
    """Prints ``error``; in a job only once, if all ranks met it or one rank caused it in others."""
    if rank is None:
        print(f"error: {in_words(error)}", file=sys.stderr)
        return
    if getattr(error, "explained", False) and signals.requested():
        return  # the rank to blame reports it, and the launcher ends the others
    if hasattr(error, "explained"):  # a PeerError: other ranks may know more
        time.sleep(_PEER_ERROR_SECS)
    elif rank > 0:
        time.sleep(_COMMON_ERROR_SECS)
    print(f"error: rank {rank}: {in_words(error)}", file=sys.stderr, flush=True)
