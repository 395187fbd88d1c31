"""Joining a run: the arguments of `jccl.connect`, and what the environment gives."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from jccl import _native, _processes, _watch, callback
from jccl._faults import typed_errors
from jccl._groups import Group, grouped
from jccl._leaving import LEAVE, Policy
from jccl._leaving import check_policy as check_term
from jccl._options import check_seconds, check_text
from jccl._peer_options import (
    ConnectOptions as ConnectOptions,
)
from jccl._peer_options import (
    Reactions,
    Security,
    Site,
    Transport,
    Waits,
)
from jccl.communicator import Communicator
from jccl.errors import InvalidError
from jccl.settings import addresses_of, connect_options, env_default, read_token

CONNECT_S = 8.0


@grouped(site=Site)
def connect(
    master: str | None = None,
    *,
    token: str | None = None,
    site: str | Site | None = None,
    deadline: float | None = None,
    security: Security = Security(),
    waits: Waits = Waits(),
    transport: Transport = Transport(),
    reactions: Reactions = Reactions(),
) -> Communicator:
    """Joins a run.

    Args:
        master: "host:port", several by commas; default JCCL_MASTER.
        token: a token of the run (or `token_file` of `security`); default JCCL_TOKEN,
            JCCL_TOKEN_FILE. Off loopback one is required unless `insecure`.
        site: name of this peer's site, or a `jccl.Site`: name, shard, shards, group.
            Peers of one site live and die together. Default JCCL_SITE, else a site of
            its own.
        deadline: seconds, for every call that names none; default JCCL_DEADLINE,
            else 300.
        security: who this peer is. `jccl.Security`: token_file, key_file, insecure.
        waits: how long it waits. `jccl.Waits`: connect_timeout, master_grace,
            start_peers.
        transport: how others reach it, and how data move. `jccl.Transport`: bind,
            advertise, stripes, max_rate, day_bytes, io_threads,
            route.
        reactions: what a fault or a signal does. `jccl.Reactions`: on_fault, on_term,
            record, record_mib, record_on_signal.

    Errors:
        MasterLostError (unreachable; says what was tried), VersionError, WrongRunError,
        AuthError, IoError (port in use), InvalidError (also if an interactive session
        joins a second time).

    Example:
        >>> with jccl.connect("127.0.0.1:29400") as comm:
        ...     mean = comm.all_reduce(gradients).value
    """
    _processes.refuse_worker()
    check_text("master", master)
    check_text("token", token)
    place = site if isinstance(site, Site) else Site(site)
    deadline = env_default(deadline, "JCCL_DEADLINE", float)
    check_seconds(deadline)
    chosen = callback.check_route(env_default(transport.route, "JCCL_ROUTE"))
    policy = _watch.check_policy(env_default(reactions.on_fault, "JCCL_ON_FAULT"))
    term = check_term(env_default(reactions.on_term, "JCCL_ON_TERM"))
    groups = (security, waits, transport, reactions)
    options = connect_options(
        {
            **{"master": master, "token": read_token(token, security.token_file)},
            **{"site": place.name, "shard": place.shard, "shards": place.shards},
            "group": place.group,
            **{name: value for one in groups for name, value in _native_fields(one)},
            "deadline": deadline,
            "connect_timeout": seconds_to_connect(waits.connect_timeout),
        }
    )
    return _join(options, chosen, policy, term)


def _join(
    options: dict[str, Any], route: str, policy: str, term: Policy
) -> Communicator:
    """By what `connect` has made of its arguments."""
    group = options["group"]
    run = f"{options['master']}, group {group}," if group else options["master"]
    place_key = run, options["site"], options["shard"]
    _processes.refuse_twice(*place_key)
    with typed_errors():
        core = _native.core().Communicator.connect(**options)
        site = options["site"] or f"peer-{core.attributes().incarnation:016x}"
    name = f"{site} in group {group}" if group else site
    watcher = _watch.Watcher(core, name, policy, term).start()
    same = {**options, "site": site, "keys_of": core}
    joins = functools.partial(_join_group, same, route, policy)
    comm = Communicator(core, route, watcher, options["site"])
    comm.joins_group = functools.partial(joins, term)
    _processes.joined(comm, *place_key)
    return comm


def _join_group(
    options: dict[str, Any],
    route: str,
    policy: str,
    term: Policy,
    group: str,
    start_peers: int | None,
    transport: Transport | None,
) -> Communicator:
    """One more communicator of a process, by the options of its first one."""
    own = dict(_native_fields(transport)) if transport else {}
    reach = own if transport else options
    port = str(reach["bind"] or "").rpartition(":")[2]
    if transport is None and port.isdigit() and int(port) > 0:
        raise InvalidError(
            f"the communicator has the port of bind={options['bind']!r}: give its "
            "group one of its own, transport=jccl.Transport(bind=…, advertise=…)"
        )
    wishes = {"group": group, "start_peers": start_peers or 0}
    # One handler takes the signal, and one call of a function is enough.
    calm = {"record_on_signal": False}
    return _join(
        {**options, **_whole(own), **wishes, **calm},
        route,
        policy,
        term if isinstance(term, str) else LEAVE,
    )


def _whole(own: dict[str, Any]) -> dict[str, Any]:
    """What a `jccl.Transport` says, as the native module takes it."""
    if not own:
        return own
    return {
        **own,
        "bind": own["bind"] or "",
        "advertise": addresses_of(own["advertise"]),
        "max_rate": float(own["max_rate"] or 0),
        "day_bytes": float(own["day_bytes"] or 0),
    }


# Fields that this side acts on: the native module does not know them.
_OURS = ("token_file", "route", "on_fault", "on_term")


def _native_fields(group: Group) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(group):  # type: ignore[arg-type]
        if field.name not in _OURS:
            yield field.name, getattr(group, field.name)


def seconds_to_connect(given: float | None) -> float:
    """Short: a wrong address is said while whoever typed it still looks."""
    chosen = env_default(given, "JCCL_CONNECT_TIMEOUT", float)
    return CONNECT_S if chosen is None else chosen
