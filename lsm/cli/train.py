"""``lsm train``: one training job; under torchrun, srun or mpirun, one rank of it."""

from __future__ import annotations

from typing import Annotated

import typer

from lsm.cli.arguments import Explain, Overrides, PrintConfig, config_names
from lsm.cli.training import train_to_summary


def train(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="YAML file, or the name of one in configs/.",
            autocompletion=config_names(),
        ),
    ],
    overrides: Overrides = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Write a torch.profiler trace of ten iterations.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print details, such as uses of memory.")
    ] = False,
    print_config: PrintConfig = False,
    explain: Explain = False,
) -> None:
    """Train and test a graph neural network; the last line of output is its summary as JSON.

    The keys are explained in configs/base.yaml: `lsm train base --explain` prints it, and
    `lsm train CONFIG --print-config` the values that CONFIG and KEY=VALUE give them.
    """
    from lsm.config.load import find_config, load_config
    from lsm.core.section import dump_config

    if explain:
        typer.echo(find_config("base").read_text(), nl=False)
        return
    profiled = ["metrics.profile_steps=10"] if profile else []
    settings = load_config(config, [*profiled, *(overrides or [])])
    if print_config:
        typer.echo(dump_config(settings), nl=False)
        return
    import lsm
    from lsm.core.terminal_log import show_log
    from lsm.distributed.environment import rank_in
    from lsm.train.checkpoint_files import list_checkpoints

    show_log(rank_in(), verbose=verbose)
    checkpoints = settings.run_dir / "checkpoints"
    train_to_summary(lsm.fit, settings, lambda: list_checkpoints(checkpoints))
