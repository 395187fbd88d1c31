"""The `jccl` command. Each subcommand is one module, imported when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

# Name: module, attribute, help.
_COMMANDS = {
    "master": ("master", "command", "Run the master of a run."),
    "run": ("run", "command", "Start a master and N peers on this machine."),
    "launch": ("launch", "command", "Start a master, and a peer on each host by ssh."),
    "status": ("status", "command", "Show a run, and what each peer waits for."),
    "top": ("top", "command", "Show a run full-screen: peers, rounds, rates, news."),
    "peers": ("peers", "command", "Show the peers: keys, tokens, faults, bans."),
    "token": ("token", "command", "Make the secret of a run, and its tokens."),
    "drain": ("orders", "drain", "Ask a peer to leave between two rounds."),
    "kick": ("orders", "kick", "Evict a site; it may return."),
    "ban": ("orders", "ban", "Evict a key, and refuse it."),
    "pardon": ("orders", "pardon", "End a ban."),
    "admit": ("orders", "admit", "Admit a key, with --admission manual or list."),
    "dump": ("orders", "dump", "Write the master's last events to a file."),
    "checkpoint": ("checkpoint", "command", "List, verify and prune checkpoints."),
    "restore": ("restore", "command", "Put a run back to a checkpoint."),
    "journal": ("journal", "command", "Verify, copy and export a master's journal."),
    "bench": ("bench", "command", "Measure collectives, with nccl-tests' columns."),
    "trace": ("trace", "command", "Write a Perfetto trace of rounds from run logs."),
    "plot": ("plot", "command", "Draw run logs: loss, bandwidth, recoveries."),
    "plan": ("plan", "command", "Compute the bandwidth that a run needs."),
    "doctor": ("doctor", "command", "Check this machine, and say how to fix it."),
}


# What stands behind `--` there is another program's.
_OF_A_PROGRAM = ("run", "launch")


def _refuse_secrets(args: Sequence[str]) -> None:
    """Of the whole line, before click can repeat a part of it in an error.

    Only `jccl token revoke` takes a token itself: one that is of no use afterwards.
    """
    from jccl.settings import NOT_A_NAME, secret_in

    revokes = list(args[:2]) == ["token", "revoke"]
    for before, text in zip(["", *args], args, strict=False):
        if text == "--" and args[0] in _OF_A_PROGRAM:
            return
        kind = secret_in(text)
        takes = before.startswith("-") and before not in ("--", "--insecure")
        if not kind or (revokes and not takes and not text.startswith("-")):
            continue
        option = text.partition("=")[0] if text.startswith("-") else before
        named = option.startswith("-") and option != "--" and not secret_in(option)
        where = f"{option}: this" if named else "this"
        raise click.UsageError(f"{where} is {kind}, {NOT_A_NAME}")


class _Lazy(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_secrets(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[name]
        command: click.Command = getattr(
            importlib.import_module(f"jccl.cli.{module}"), attribute
        )
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[2]) for name, row in _COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from jccl._build import as_text

        click.echo(as_text())
        ctx.exit()


@click.command(cls=_Lazy)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version, how it was built, and what it finds here.",
)
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
