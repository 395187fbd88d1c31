"""`jccl status`: a run as its master sees it, and what each peer waits for."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jccl.cli.common import Run, group_option, run_options, shown

EXIT_FAILED = 2


@click.command(name="status")
@run_options
@group_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print the master's answer as JSON."
)
@click.option("--watch", is_flag=True, help="Update once a second, until Ctrl-C.")
@click.option(
    "--timeout", default=5.0, show_default=True, help="Seconds to wait for an answer."
)
def command(
    master: str | None,
    token_file: str | None,
    insecure: bool,
    group: str,
    as_json: bool,
    watch: bool,
    timeout: float,
) -> None:
    """Show a run: its peers, its rounds, and what every peer waits for.

    Exit code: 0 if the master serves, 1 if it can't be reached, 2 if it has failed.
    """
    run = Run(master, token_file, insecure, group)

    def ask() -> str:
        return run.status(timeout)

    if watch:
        _watch(ask)
        return
    text = ask()
    if as_json:
        click.echo(json.dumps(json.loads(text), indent=2))
    else:
        Console().print(render(json.loads(text)))
    if json.loads(text).get("failure"):
        raise SystemExit(EXIT_FAILED)


def _watch(ask: Any) -> None:
    try:
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(render(json.loads(ask())), refresh=True)
                time.sleep(1.0)
    except KeyboardInterrupt:
        return


def render(status: dict[str, Any]) -> Group:
    """The status object as tables."""
    head = (
        f"run {status['run'][:8]}  "
        + (f"group {status['group']}  " if status.get("group") else "")
        + f"epoch {status['epoch']}  "
        f"master {status['address']}  up {status['uptime_s']:.0f} s  "
        f"store {status['journal']['store']}"
    )
    bounded = any(_bound_of(peer) for peer in status["peers"])
    peers = Table("peer", "site", "shard", "state", "silent", "left")
    if bounded:
        peers.add_column("sends at most")
    peers.add_column("waits for")
    for peer in status["peers"]:
        peers.add_row(
            str(peer["id"] or "-"),
            shown(peer["site"] or "-"),
            f"{peer['shard']}/{peer['shards']}",
            state_of(peer),
            f"{peer['silent_s']:.1f} s",
            left_of(peer),
            *([_bound_of(peer) or "-"] if bounded else []),
            shown(
                "; ".join(
                    filter(
                        None, (peer["trouble"], peer.get("faults"), peer["waiting_for"])
                    )
                )
                or "-"
            ),
        )
    tags = Table(
        "tag", "committed", "phase", "attempt", "aborts", "waits for", expand=False
    )
    for tag in status["tags"]:
        tags.add_row(
            shown(tag["tag"]),
            str(tag["committed"]),
            shown(tag["phase"]),
            shown(tag["attempt"] or "-"),
            str(tag["aborts"]),
            shown(tag["waiting_for"] or "-"),
        )
    parts: list[Any] = [shown(head)]
    if status.get("failure"):
        failed = Text("FAILED", style="bold red")
        parts.append(Text.assemble(failed, ": ", shown(status["failure"])))
    if not status["peers"]:
        parts.append("no peers")
    audits = [
        shown(f"{tag['tag']}: {tag['audit']}")
        for tag in status["tags"]
        if tag.get("audit")
    ]
    audits += [shown(_finding(one)) for one in status.get("findings", ())]
    groups = [
        shown(f"group {one['group']}: {one['sites']} sites")
        for one in status.get("groups", ())
    ]
    return Group(*parts, peers, tags, *audits, *groups)


def _finding(row: dict[str, Any]) -> str:
    """The newest audit of a site's training (docs/audits.md)."""
    found = "nobody found it different"
    if row["different"]:
        found = f"{row['different']} of them found it different"
    worst = "far beyond" if row["worst"] > 100 else f"{row['worst']:.2f} of"
    often = f"; convicted {row['convicted']} times" if row["convicted"] else ""
    return (
        f"{row['tag']}: audit of {row['site']}, round {row['round']}: repeated by "
        f"{row['repeated']}, {found}; worst statistic {worst} its limit{often}"
    )


def left_of(peer: dict[str, Any]) -> str:
    """What its attempts have still to move, of how much."""
    left = sum(one["left_bytes"] for one in peer["moving"])
    total = sum(one["all_bytes"] for one in peer["moving"])
    return f"{left / 1e6:.1f} of {total / 1e6:.1f} MB" if total else "-"


def _bound_of(peer: dict[str, Any]) -> str:
    """What it may send to others: its own bounds, or the run's if that is lower."""
    rate, day = peer.get("max_rate", 0), peer.get("day_bytes", 0)
    both = (f"{rate / 1e6:g} MB/s" * bool(rate), f"{day / 1e9:g} GB a day" * bool(day))
    return ", ".join(filter(None, both))


def state_of(peer: dict[str, Any]) -> str:
    if not peer["connected"]:
        return "lost"
    return "member" if peer["admitted"] else "observer"
