"""`jccl peers`: who is who in a run, what is held against whom, and who is refused."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console, Group
from rich.table import Column, Table

from jccl.cli.common import Run, group_option, run_options, shown

KEY_DIGITS = 16  # of a key in a table; orders take so many, too
_WIDTH_MIN = 80  # columns; a narrower terminal breaks lines, and cuts no key


@click.command(name="peers")
@run_options
@group_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON lists, not tables.")
def command(
    master: str | None,
    token_file: str | None,
    insecure: bool,
    group: str,
    as_json: bool,
) -> None:
    """Show the peers of a run: keys, tokens, faults, bans."""
    status = json.loads(Run(master, token_file, insecure, group).status())
    if as_json:
        lists = {name: status[name] for name in ("peers", "bans", "tokens")}
        click.echo(json.dumps(lists, indent=2))
    else:
        console = Console()
        console.width = max(console.width, _WIDTH_MIN)
        console.print(render(status, time.time()))


def render(status: dict[str, Any], now: float) -> Group:
    """The lists as tables; those without rows are left out."""
    token = Column("token", overflow="fold")  # they differ in their last digits
    peers = Table(_site(), "shard", _key("key"), token, "state", "held against it")
    for peer in status["peers"]:
        peers.add_row(
            shown(peer["site"] or "-"),
            f"{peer['shard']}/{peer['shards']}",
            peer["key"][:KEY_DIGITS],
            shown(peer["token"] or "-"),
            "member" if peer["admitted"] else "outside",
            shown(peer["faults"] or "-"),
        )
    bans = Table(_key("banned key"), _site(), "for", "reason")
    for ban in status["bans"]:
        until = ban["until_unix_ms"]
        left = "good" if until is None else f"{max(0, until / 1e3 - now):.0f} s"
        bans.add_row(
            ban["key"][:KEY_DIGITS],
            shown(ban["site"] or "-"),
            left,
            shown(ban["reason"]),
        )
    tables = (peers, bans, tokens_of(status))
    return Group(*(one for one in tables if one.row_count))


def _key(title: str) -> Column:
    """An order takes no fewer digits, so this column gives way to none."""
    return Column(title, no_wrap=True, min_width=KEY_DIGITS)


def _site() -> Column:
    """A peer chooses its site, up to 64 bytes: where there is no room it is cut."""
    return Column("site", overflow="ellipsis")


def tokens_of(status: dict[str, Any]) -> Table:
    """By which tokens somebody joined, and which were revoked."""
    tokens = Table(Column("token", no_wrap=True), "keys that joined", "state")
    for token in status["tokens"]:
        state = "revoked" if token["revoked"] else "taken"
        tokens.add_row(shown(token["name"]), str(token["keys"]), state)
    return tokens
