"""The `jccl` command. Each subcommand is one module, imported when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from jccl import __version__

_COMMANDS = {
    "master": "Run the master of a run.",
    "run": "Start a master and N peers on this machine.",
    "status": "Show a run: its peers and what each one waits for.",
    "bench": "Measure collectives, with nccl-tests' columns.",
    "plan": "Say what bandwidth a run needs, and which settings fit.",
    "doctor": "Check this machine, and say how to fix what is wrong.",
    "token": "Make a new token.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"jccl.cli.{name}")
        command: click.Command = module.command
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Lazy)
@click.version_option(version=__version__, prog_name="jccl")
def group() -> None:
    """Fault-tolerant collectives for JAX."""


def main(args: Sequence[str] | None = None) -> None:
    """Entry point: a fault of a run is one line and exit code 1, not a traceback."""
    from jccl.errors import Error

    try:
        group.main(args=args, prog_name="jccl", standalone_mode=True)
    except Error as fault:
        # Not the remedy: those speak of calls in a script.
        click.echo(f"jccl: {fault.text} [{fault.code.name}]", err=True)
        sys.exit(1)
