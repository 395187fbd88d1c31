"""`jccl drain`, `kick`, `ban`, `pardon`, `admit`, `dump`: what an operator may order.

They take the run's secret, or a token with the role admin. A key is named by its 64
hex digits, the first 16 of them, or a site.
"""

from __future__ import annotations

import json
from typing import Any

import click

from jccl.cli.common import Run, Span, group_option, quoted, run_options
from jccl.cli.peers import KEY_DIGITS

Rows = list[dict[str, Any]]
Lists = dict[str, Rows]  # of the status, by name

_FULL_DIGITS = 64
_NO_KEY = "-"  # as none begins
_OFFLINE = click.option(
    "--offline", is_flag=True, help="KEY is a whole key; its peer may be away."
)


@click.command(name="kick")
@run_options
@group_option
@click.argument("site")
@click.option("--reason", default="", help="Reason that its peers see.")
def kick(site: str, reason: str, **run: Any) -> None:
    """Evict SITE. It may return at once; see ban."""
    master = Run(**run)
    sites = {site}
    if _is_digits(site):  # it may be meant as a key
        sites = {row["site"] for row in _rows(_lists(master), site, "peers")}
    for one in sorted(sites):
        click.echo(master.order("kick", one, reason=reason))


@click.command(name="drain")
@run_options
@group_option
@click.argument("peer")
@click.option("--reason", default="", help="Reason that the peer and the others see.")
def drain(peer: str, reason: str, **run: Any) -> None:
    """Ask PEER, a site or a key, to leave between two rounds.

    Then nobody waits for it, and its processes end with exit code 143, as on SIGTERM.
    """
    master = Run(**run)
    rows = _rows(_lists(master), peer, "peers")
    for site in sorted({row["site"] for row in rows}):
        click.echo(master.order("drain", site, reason=reason))


@click.command(name="ban")
@run_options
@click.argument("key")
@click.option("--for", "span", type=Span(), help="90s, 12h, 7d; default: permanent.")
@click.option("--reason", default="", help="Reason that its peer sees.")
@_OFFLINE
def ban(key: str, span: int | None, reason: str, offline: bool, **run: Any) -> None:
    """Evict every peer with KEY, and refuse the key."""
    master = Run(**run)
    for one in _keys(master, key, offline, banned=True):
        click.echo(master.order("ban", one, span=float(span or 0), reason=reason))


@click.command(name="pardon")
@run_options
@click.argument("key")
def pardon(key: str, **run: Any) -> None:
    """End the ban of KEY."""
    master = Run(**run)
    for one in sorted({row["key"] for row in _rows(_lists(master), key, "bans")}):
        click.echo(master.order("pardon", one))


@click.command(name="admit")
@run_options
@click.argument("key")
@_OFFLINE
def admit(key: str, offline: bool, **run: Any) -> None:
    """Let KEY become a member, if newcomers have to wait for that."""
    master = Run(**run)
    for one in _keys(master, key, offline):
        click.echo(master.order("admit", one))


@click.command(name="dump")
@run_options
@group_option
@click.option("--reason", default="", help="Reason, for readers of the recording.")
def dump(reason: str, **run: Any) -> None:
    """Write what the master's flight recorder holds to a file on its machine.

    The master says where. It needs `jccl master --record FOLDER`. jccl-sim --replay
    reads the file.
    """
    click.echo(Run(**run).order("dump", "", reason=reason))


def _lists(master: Run) -> Lists:
    status = json.loads(master.status_for_order())
    return {name: status[name] for name in ("peers", "bans")}


def _is_digits(name: str) -> bool:
    """Whether it may be a key: those have no fewer digits anywhere."""
    return len(name) >= KEY_DIGITS and set(name.lower()) <= set("0123456789abcdef")


def _keys(master: Run, name: str, offline: bool, *, banned: bool = False) -> list[str]:
    """The whole keys that `name` means; `banned`: also of one that is banned already.

    A key in full may be of a peer that is away, or the content of a key file: both are
    64 digits, and an order shows them to all. So somebody has to have said which.
    """
    key = name.lower()
    full = _is_digits(name) and len(name) == _FULL_DIGITS
    if offline and not full:
        raise click.UsageError(f"--offline takes a key in full, {_FULL_DIGITS} digits")
    lists = {} if offline else _lists(master)
    if full:
        if offline or key in _keys_of(lists):
            return [key]
        raise click.ClickException(
            "no peer has this key now, and no ban names it. If its peer is away, add "
            "--offline. Never give the content of a key file: an order shows it to all"
        )
    away = banned and not any(_meant(lists, name, "peers"))
    return sorted(
        {row["key"] for row in _rows(lists, name, "bans" if away else "peers")}
    )


def _keys_of(lists: Lists) -> set[str]:
    return {row["key"] for rows in lists.values() for row in rows}


def _meant(lists: Lists, name: str, among: str) -> tuple[Rows, Rows]:
    """Those whose key begins so, and those whose site is named so."""
    begin = name.lower() if _is_digits(name) else _NO_KEY
    full = _is_digits(name) and len(name) == _FULL_DIGITS
    by_key = [row for row in lists[among] if row["key"].startswith(begin)]
    return by_key, [row for row in lists[among] if row["site"] == name and not full]


def _rows(lists: Lists, name: str, among: str) -> list[dict[str, Any]]:
    """Those that `name` means: of its key, else of its site.

    Peers choose the names of their sites, so one may be named like another's key.
    """
    begin = name.lower() if _is_digits(name) else _NO_KEY
    by_key, by_site = _meant(lists, name, among)
    keys = {key for key in _keys_of(lists) if key.startswith(begin)}
    others = {row["key"] for row in by_site} - keys
    if len(keys) > 1 or (keys and others):
        sites = f"; of the site of that name: {_listed(others)}" if others else ""
        raise click.ClickException(
            f"{quoted(name)} fits more than one. Give all {_FULL_DIGITS} digits of the "
            f"key that you mean. It begins: {_listed(keys)}{sites}"
        )
    if not by_key and not by_site:
        raise click.ClickException(
            f"{quoted(name)} is neither a site of the run's {among} nor the first "
            f"{KEY_DIGITS} digits of a key there; see jccl peers"
        )
    return by_key or by_site


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(keys))
