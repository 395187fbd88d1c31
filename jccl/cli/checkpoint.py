"""`jccl checkpoint`: what `jccl.Checkpoints` saved, looked at without a run."""

from __future__ import annotations

import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jccl.cli.common import shown

WHERE = click.argument("where", metavar="DIR")


@click.group(name="checkpoint")
def command() -> None:
    """Examine checkpoints in DIR: a folder, s3://BUCKET/PATH or gs://BUCKET/PATH."""


@command.command(name="list")
@WHERE
def show(where: str) -> None:
    """Show the checkpoints in DIR, the newest last."""
    from jccl.checkpoint import records

    table = Table("number", "site", "run", "saved", "size", "holds")
    found = _found(where)[1]
    partial = records.partial(found)
    for one in found:
        if one.record is None:
            table.add_row(str(one.number), shown(one.whose), "", "", "", one.problem)
            continue
        record = one.record
        saved = datetime.datetime.fromtimestamp(record.saved_unix_s, datetime.UTC)
        holds = [*map(str, record.revisions)]
        if records.SHARED not in record.holds:
            holds.append("its own part alone")
        elif records.OWN not in record.holds:
            holds.append("the shared part alone")
        if one in partial:
            holds.append(f"incomplete: {records.PARTIAL}")
        table.add_row(
            str(one.number),
            shown(one.whose),
            record.run[:8],
            f"{saved:%Y-%m-%d %H:%M:%S}",
            f"{record.bytes / 1e6:.3f} MB",
            shown("\n".join(holds)),
        )
    Console(width=200 if not Console().is_terminal else None).print(table)


@command.command(name="verify")
@WHERE
def verify(where: str) -> None:
    """Read all of DIR: compare every file, and compute every digest again.

    Exit code 1 if something is damaged. A checkpoint that was never complete is not
    damage.
    """
    from jccl.checkpoint import reading, records
    from jccl.errors import DamagedError

    store, found = _found(where)
    partial = records.partial(found)
    damaged = 0
    for one in found:
        said = f"checkpoint {one.number} of {one.whose}"
        problem = one.problem
        if one.record:
            try:
                reading.verify(store, one.record)
            except DamagedError as fault:
                problem = fault.text
        damaged += bool(problem) and problem != records.INCOMPLETE
        whole = f"incomplete: {records.PARTIAL}" if one in partial else "whole"
        click.echo(f"{said}: {problem or whole}")
    if damaged:
        raise click.ClickException(f"{damaged} of {len(found)} damaged")


@command.command(name="prune")
@WHERE
@click.option(
    "--keep",
    type=click.IntRange(1),
    required=True,
    help="Number of checkpoints to keep.",
)
@click.option(
    "--incomplete",
    is_flag=True,
    help="Also remove checkpoints that were never complete.",
)
def prune(where: str, keep: int, incomplete: bool) -> None:
    """Remove all but the newest checkpoints of DIR, of all sites.

    Use --incomplete only when no process saves there: a checkpoint that is being
    written is not complete yet.
    """
    from jccl.checkpoint import records

    store, found = _found(where)
    gone = records.older_than_kept(found, keep)
    if incomplete:
        gone += [one for one in found if one.problem == records.INCOMPLETE]
        gone += [one for one in records.partial(found) if one not in gone]
    for one in gone:
        records.remove(store, one)
        click.echo(f"removed checkpoint {one.number} of {one.whose}")


def _found(where: str) -> tuple[Any, list[Any]]:
    from jccl.checkpoint import records, stores

    store = stores.open_store(where)
    found = records.find(store)
    if not found:
        raise click.ClickException(f"no checkpoint in {store.where}")
    return store, found
