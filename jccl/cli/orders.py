"""`jccl drain`, `kick`, `ban`, `pardon`, `admit`: what an operator may order.

They take the run's secret, or a token with the role admin. A key is named by its 64
hex digits, the first 16 of them, or a site.
"""

from __future__ import annotations

import json
from typing import Any

import click

from jccl.cli.common import Run, Span, run_options
from jccl.cli.peers import KEY_DIGITS

_FULL_DIGITS = 64


@click.command(name="kick")
@run_options
@click.argument("site")
@click.option("--reason", default="", help="What its peers are told.")
def kick(site: str, reason: str, **run: Any) -> None:
    """Evict SITE. It may come back at once; see ban."""
    click.echo(Run(**run).order("kick", site, reason=reason))


@click.command(name="drain")
@run_options
@click.argument("peer")
@click.option("--reason", default="", help="What it and the others are told.")
def drain(peer: str, reason: str, **run: Any) -> None:
    """Ask PEER, a site or a key, to leave between two rounds.

    Nobody waits for it then, and its processes end with exit code 143, as on SIGTERM.
    """
    master = Run(**run)
    rows = json.loads(master.status())["peers"]
    sites = {row["site"] for row in rows}
    if peer not in sites:
        keys = _keys(master, peer, "peers")
        sites = {row["site"] for row in rows if row["key"] in keys}
    else:
        sites = {peer}
    for site in sorted(sites):
        click.echo(master.order("drain", site, reason=reason))


@click.command(name="ban")
@run_options
@click.argument("key")
@click.option("--for", "span", type=Span(), help="90s, 12h, 7d; default: for good.")
@click.option("--reason", default="", help="What its peer is told.")
def ban(key: str, span: int | None, reason: str, **run: Any) -> None:
    """Evict whoever has KEY, and refuse it."""
    master = Run(**run)
    for one in _keys(master, key, "peers"):
        click.echo(master.order("ban", one, span=float(span or 0), reason=reason))


@click.command(name="pardon")
@run_options
@click.argument("key")
def pardon(key: str, **run: Any) -> None:
    """End the ban of KEY."""
    master = Run(**run)
    for one in _keys(master, key, "bans"):
        click.echo(master.order("pardon", one))


@click.command(name="admit")
@run_options
@click.argument("key")
def admit(key: str, **run: Any) -> None:
    """Let KEY become a member, where newcomers wait for that."""
    master = Run(**run)
    for one in _keys(master, key, "peers"):
        click.echo(master.order("admit", one))


def _keys(master: Run, name: str, among: str) -> list[str]:
    """The whole keys that `name` means."""
    digits = set(name.lower()) <= set("0123456789abcdef")
    if digits and len(name) == _FULL_DIGITS:
        return [name.lower()]
    rows = json.loads(master.status())[among]
    found = sorted({row["key"] for row in rows if row["site"] == name})
    if not found and digits and len(name) >= KEY_DIGITS:
        found = sorted(
            {row["key"] for row in rows if row["key"].startswith(name.lower())}
        )
    if not found:
        raise click.ClickException(
            f"{name!r} is neither a site of the run's {among} nor the first "
            f"{KEY_DIGITS} digits of a key there; see jccl peers"
        )
    return found
