"""`jccl restore`: an operator puts a run back to a checkpoint."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from typing import Any

import click

from jccl._options import Restore
from jccl.cli.common import Run, run_options

ASK_EVERY_S = 0.5


@click.command(name="restore")
@run_options
@click.argument("where", metavar="DIR")
@click.option("--number", type=int, help="Which checkpoint; default the newest.")
@click.option("--advertise", help="Address by which the peers reach this machine.")
@click.option(
    "--wait",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds to wait until a peer has adopted it.",
)
@click.option(
    "--any",
    "any_state",
    is_flag=True,
    help='Accept a state that the journal does not know: restore="any".',
)
@click.option(
    "--again",
    is_flag=True,
    help='Accept a state that the run went back to before: restore="again".',
)
def command(
    where: str,
    number: int | None,
    advertise: str | None,
    wait: float,
    any_state: bool,
    again: bool,
    **how: Any,
) -> None:
    """Put a run back to a checkpoint in DIR, even if there are newer states.

    All peers adopt it at their next round, and print a line. In a run without peers,
    the first one that joins adopts it. The command ends when a peer has the state. A
    second time with the same checkpoint it does nothing, except with --again. It needs
    the run's secret, or a token with the role admin.
    """
    from jccl._peer_options import Reactions, Site, Transport
    from jccl.checkpoint import putting_back, reading, records, stores

    run = Run(**how)
    about = json.loads(run.status())
    store = stores.open_store(where)
    whole = putting_back.chosen(records.find(store), about["run"], number)
    arrays = reading.shared(store, whole)
    click.echo(f"{whole}, is whole")
    end = time.monotonic() + wait
    site = f"restore-{secrets.token_hex(2)}"
    reach, calm = Transport(advertise=advertise), Reactions(on_term="ignore")
    with contextlib.ExitStack() as joined:
        # A site as those of the run: with a peer for each part of the leaves.
        comms = [
            joined.enter_context(
                run.join(
                    site=Site(site, part, whole.parts), transport=reach, reactions=calm
                )
            )
            for part in range(whole.parts)
        ]
        wish: Restore = "again" if again else "any" if any_state else True
        brought = putting_back.bring(comms, whole, arrays, wait, wish)
        granted = {tag: one for tag, one in brought.items() if not one.replaced}
        for tag, one in brought.items():
            if tag in granted:
                click.echo(f"{tag}: the run goes on from it as revision {one.revision}")
            else:
                click.echo(
                    f"{tag}: was restored before, and the run went on to revision "
                    f"{one.revision}; --again puts it back once more"
                )
        if not granted:
            return
        click.echo("waits for a peer to adopt it")
        while not putting_back.is_taken(run.status(), granted):
            if time.monotonic() > end:
                raise click.ClickException(
                    f"no peer has adopted it in {wait:.0f} s, and it is lost when this "
                    "command ends: start the peers, and then this command again"
                )
            time.sleep(ASK_EVERY_S)
    click.echo("a peer has adopted it")
