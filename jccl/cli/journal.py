"""`jccl journal`: a master's journal while no master has it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import click


@contextlib.contextmanager
def _core() -> Iterator[Any]:
    from jccl import _native
    from jccl._faults import typed_errors

    with typed_errors():
        yield _native.core()


insecure_option = click.option(
    "--insecure", is_flag=True, help="Allow etcd off this machine without TLS."
)


@click.group(name="journal")
def command() -> None:
    """Verify, copy and export a master's journal.

    STORE is a value of `jccl master --store`: sqlite:PATH or etcd://HOST:PORT,…/PREFIX.
    Stop the master first; peers wait for it. These commands do not change a journal.
    """


@command.command()
@click.argument("store")
@insecure_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(store: str, insecure: bool, as_json: bool) -> None:
    """Check that a journal is whole, and say what it holds.

    The command reads every row and checks it against the row before it. It names a
    damaged row, and fails.
    """
    with _core() as core:
        text = core.journal_summary(store, insecure=insecure)
    if as_json:
        click.echo(text)
        return
    found = json.loads(text)
    click.echo(f"whole: {found['rows']} rows, {found['bytes']} bytes")
    if found["torn_rows"]:
        click.echo("one more row was being written; the next master cuts it off")
    click.echo(f"run {found['run']}, epoch {found['epoch']}")
    sites = sorted({member["site"] for member in found["members"]})
    click.echo(f"members: {', '.join(sites) or 'none'}")
    for tag in found["tags"]:
        what = "state, revision" if tag["is_state"] else "rounds"
        click.echo(f"{tag['tag']}: {what} {tag['committed']}")
    click.echo(f"bans: {found['bans']}, tokens used or revoked: {found['tokens']}")


@command.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@insecure_option
def copy(source: str, target: str, insecure: bool) -> None:
    """Copy a journal to an empty store: to move a run, or as a backup.

    The command reads the rows back and compares them. Start a master on only one of the
    two: otherwise there would be two runs under one name. Do not use a copy that did
    not end with "copied".
    """
    with _core() as core:
        rows = core.copy_journal(source, target, insecure=insecure)
    click.echo(f"copied {rows} rows to {target}")


@command.command()
@click.argument("store")
@insecure_option
def export(store: str, insecure: bool) -> None:
    """Print each record as a line of JSON, the oldest first.

    Fields are named as in the wire protocol. They contain no secret.
    """
    with _core() as core:
        core.export_journal(store, click.echo, insecure=insecure)
