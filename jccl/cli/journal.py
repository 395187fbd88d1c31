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
    "--insecure", is_flag=True, help="Also etcd off this machine without TLS."
)


@click.group(name="journal")
def command() -> None:
    """Verify, copy and export a master's journal.

    STORE is what `jccl master --store` takes: sqlite:PATH or etcd://HOST:PORT,…/PREFIX.
    Stop the master first; peers wait for it. Nothing here changes a journal.
    """


@command.command()
@click.argument("store")
@insecure_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def verify(store: str, insecure: bool, as_json: bool) -> None:
    """See that a journal is whole, and say what it holds.

    Every row is read, and checked against the row before it. A damaged one is named,
    and the command fails.
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

    The rows are read back and compared. Start a master on one of the two only: a run
    that went on from both would be two runs under one name. A copy that did not end
    with "copied" is not to be used.
    """
    with _core() as core:
        rows = core.copy_journal(source, target, insecure=insecure)
    click.echo(f"copied {rows} rows to {target}")


@command.command()
@click.argument("store")
@insecure_option
def export(store: str, insecure: bool) -> None:
    """Print each record as a line of JSON, the oldest first.

    Fields are named as in the wire protocol. No secret is among them.
    """
    with _core() as core:
        core.export_journal(store, click.echo, insecure=insecure)
