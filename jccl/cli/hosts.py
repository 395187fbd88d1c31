"""The file that `jccl launch` reads: a master, and the hosts whose peers join it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from jccl.settings import DEFAULT_PORT

SITE_BYTES_MAX = 64


@dataclass(frozen=True)
class Place:
    """Where ssh goes to, and in which folder the command starts there."""

    ssh: str = ""
    options: tuple[str, ...] = ()
    folder: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Master:
    """Without `place` it runs in the launcher."""

    address: str  # that peers dial
    bind: str
    store: str
    place: Place | None


@dataclass(frozen=True)
class Host:
    name: str  # of its site
    place: Place
    master: str  # where it reaches the master


@dataclass(frozen=True)
class Plan:
    master: Master
    hosts: tuple[Host, ...]


_PLACE = {"ssh": str, "options": list, "folder": str, "env": dict}
_KINDS = {"str": "a text", "list": "a list", "dict": "a table"}
_HOST = {"name": str, "master": str, **_PLACE}
_MASTER = {"address": str, "bind": str, "store": str, **_PLACE}


def read(path: Path) -> Plan:
    """ClickException with what is wrong where."""
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise click.ClickException(f"{path} can't be read: {fault}") from None
    try:
        return _plan(found)
    except ValueError as fault:
        raise click.ClickException(f"{path}: {fault}") from None


def _plan(found: dict[str, Any]) -> Plan:
    _check("the file", found, {"master": dict, "host": list})
    table = found.get("master", {})
    _check("[master]", table, _MASTER)
    bind = table.get("bind", f"0.0.0.0:{DEFAULT_PORT}")
    if not table.get("address"):
        raise ValueError(
            "[master] names no address: add address = 'HOST:PORT', at which all hosts "
            "reach the master"
        )
    place = _place("[master]", table) if "ssh" in table else None
    master = Master(table["address"], bind, table.get("store", "memory:"), place)
    hosts = tuple(_host(one, master.address) for one in found.get("host", ()))
    if not hosts:
        raise ValueError("it names no host: add a table [[host]] for each")
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two hosts are called {name}: each is a site of its own")
    return Plan(master, hosts)


def _host(table: Any, master: str) -> Host:
    where = f"[[host]] {table.get('name', '')}" if isinstance(table, dict) else "host"
    _check(where, table, _HOST)
    name = table.get("name") or table.get("ssh", "")
    if not 0 < len(name.encode()) <= SITE_BYTES_MAX or not name.isprintable():
        raise ValueError(
            f"{where}: its name (or ssh, if it has no name) must have 1 to "
            f"{SITE_BYTES_MAX} printable bytes"
        )
    place = _place(where, {"ssh": name, **table})
    return Host(name, place, table.get("master", master))


def _place(where: str, table: Mapping[str, Any]) -> Place:
    if table["ssh"].startswith("-") or not table["ssh"]:
        raise ValueError(f"{where}: ssh = {table['ssh']!r} is not a host")
    texts = [*table.get("options", ()), *table.get("env", {}).values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{where}: options and env must hold strings only")
    return Place(
        table["ssh"],
        tuple(table.get("options", ())),
        table.get("folder", ""),
        table.get("env", {}),
    )


def _check(where: str, table: Any, keys: Mapping[str, type]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table")
    for key, value in table.items():
        if key not in keys:
            known = ", ".join(keys)
            raise ValueError(f"{where} has the unknown key {key}; known: {known}")
        if not isinstance(value, keys[key]):
            raise ValueError(f"{where}: {key} must be {_KINDS[keys[key].__name__]}")
