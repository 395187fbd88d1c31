"""The groups of options of `jccl.connect`: who a peer is, how it reaches the others,
how long it waits, and what it does when something happens.

What is None comes from the environment, see `jccl.settings`. Any thread.
"""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Sequence
from typing import TypedDict

from jccl import _watch, callback
from jccl._groups import Group, check_kind
from jccl._leaving import Policy
from jccl._leaving import check_policy as check_term
from jccl._options import RECORD_MIB_MAX, check_day_bytes, check_rate, check_text
from jccl.errors import InvalidError
from jccl.settings import refuse_secret

Name = str | os.PathLike[str]


def _check_from(least: float, unit: str, **values: float | None) -> None:
    check_kind(numbers.Real, **values)
    for name, value in values.items():
        if value is not None and value < least:
            raise InvalidError(f"{name}={value} must be {unit}, {least:g} or more")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Site(Group):
    """The site of a peer, and its place there. Peers of one site enter, live and leave
    together.

    Args:
        name: alike on all peers of the site. Default JCCL_SITE, else a site of its own.
        shard: index of this peer in the site, from 0. Default JCCL_SHARD, else 0.
        shards: number of peers of the site. Default JCCL_SHARDS, else 1.
        group: join this group of the run alone, see `group` of a communicator. Default
            JCCL_GROUP, else "": the run itself.
    """

    name: str | None = None
    shard: int | None = None
    shards: int | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        check_text("site", self.name)
        refuse_secret("site", self.name)
        check_text("group", self.group)
        refuse_secret("group", self.group)
        check_kind(numbers.Integral, shard=self.shard, shards=self.shards)
        _check_from(0, "an index", shard=self.shard)
        _check_from(1, "a number of peers", shards=self.shards)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Security(Group):
    """How a peer proves that it may join, and who it is.

    Args:
        token_file: file that holds the token, in place of `token` of `jccl.connect`.
            Default JCCL_TOKEN_FILE.
        key_file: file with the key pair of this peer, created if missing. With it a
            restarted process gets its seat at once. Default JCCL_KEY_FILE, else a fresh
            pair.
        insecure: allows plain connections off loopback, without a token. Default
            JCCL_INSECURE, else False.
    """

    token_file: Name | None = None
    key_file: Name | None = None
    insecure: bool | None = None

    def __post_init__(self) -> None:
        kinds = (str, os.PathLike)
        check_kind(kinds, token_file=self.token_file, key_file=self.key_file)
        check_kind(bool, insecure=self.insecure)
        refuse_secret("token_file", self.token_file)
        refuse_secret("key_file", self.key_file)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Waits(Group):
    """How long a peer waits for the master, and for whom the first round waits.

    Args:
        connect_timeout: seconds to reach the master. Default JCCL_CONNECT_TIMEOUT, else
            8. Set more if peers may start before the master.
        master_grace: seconds to wait for a lost master to come back.
        start_peers: number of sites that the first round waits for. Default
            JCCL_START_PEERS.
    """

    connect_timeout: float | None = None
    master_grace: float = 60.0
    start_peers: int | None = None

    def __post_init__(self) -> None:
        _check_from(0, "seconds", connect_timeout=self.connect_timeout)
        _check_from(0, "seconds", master_grace=self.master_grace)
        check_kind(numbers.Integral, start_peers=self.start_peers)
        _check_from(0, "a number of sites", start_peers=self.start_peers)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Transport(Group):
    """How other peers reach this one, and how its data move.

    Args:
        bind: listen address; "none" for a peer that can only dial out. Default
            JCCL_BIND.
        advertise: addresses where other peers may reach this one, tried in order; a
            list, or one text with commas. Default JCCL_ADVERTISE.
        stripes: connections per link; 0 chooses.
        max_rate: bytes per second that this peer sends to all others together, at least
            10,000: for a line that others use too, or that is paid for. What it
            receives is bounded by what the others send. Default JCCL_MAX_RATE, else no
            bound.
        day_bytes: bytes that it sends so in any 24 hours, at least 0.9e9. Of them a
            twenty-fifth may leave at once; then its links are as fast as the rest
            lasts. Default JCCL_DAY_BYTES, else no bound.
        io_threads: whether two more threads move large data. Default JCCL_IO_THREADS,
            else if there are three cores for each peer of this machine.
        route: how compiled programs reach the transport: "ffi", "buffer_callback" (CPU)
            or "io_callback". Default JCCL_ROUTE, else FFI where XLA has it, else
            `io_callback`. All give the same bits.
    """

    bind: str | None = None
    advertise: Sequence[str] | str | None = None
    stripes: int = 0
    max_rate: float | None = None
    day_bytes: float | None = None
    io_threads: bool | None = None
    route: str | None = None

    def __post_init__(self) -> None:
        check_text("bind", self.bind)
        refuse_secret("bind", self.bind)
        check_kind((str, Sequence), advertise=self.advertise)
        check_kind(numbers.Integral, stripes=self.stripes)
        _check_from(0, "a number of connections", stripes=self.stripes)
        if self.max_rate is not None:
            check_kind(numbers.Real, max_rate=self.max_rate)
            check_rate(self.max_rate)
        if self.day_bytes is not None:
            check_kind(numbers.Real, day_bytes=self.day_bytes)
            check_day_bytes(self.day_bytes)
        check_kind(bool, io_threads=self.io_threads)
        callback.check_route(self.route)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Reactions(Group):
    """What this process does after a fault or a signal.

    Args:
        on_fault: "warn" logs faults of compiled programs to `jccl`. "raise" also raises
            each new one in the thread that connected, between two steps, or in the
            next call on the host. "ignore" does neither. By default, faults that no
            later round heals are raised after three rounds, and the others are logged.
            Default JCCL_ON_FAULT.
        on_term: what SIGTERM and an operator's `jccl drain` do. "leave" (default):
            this peer leaves the run at once, so that nobody waits for it. Then
            `jccl.Leaving`, a SystemExit with code 143, is raised between two steps. A
            function is called before that, for example to save. "flag": `leaving` of
            the communicator says why, and the loop checks it. "ignore": nothing.
            Handlers need the main thread: if another thread connects, SIGTERM does
            what it did before. Default JCCL_ON_TERM.
        record: a folder for recordings of this peer, which `jccl-sim --replay` reads:
            one after a fault, and one when `record()` of the communicator is called.
            Default JCCL_RECORD, else none are written.
        record_mib: MiB of memory that hold the last events for them; 0: none.
        record_on_signal: whether SIGUSR1 asks for a recording. The signal must be one
            that the program has no handler for. Default JCCL_RECORD_ON_SIGNAL, else
            False.
    """

    on_fault: str | None = None
    on_term: Policy | None = None
    record: Name | None = None
    record_mib: int = 2
    record_on_signal: bool | None = None

    def __post_init__(self) -> None:
        _watch.check_policy(self.on_fault)
        check_term(self.on_term)
        check_kind((str, os.PathLike), record=self.record)
        refuse_secret("record", self.record)
        check_kind(numbers.Integral, record_mib=self.record_mib)
        _check_from(0, "MiB", record_mib=self.record_mib)
        if self.record_mib > RECORD_MIB_MAX:
            raise InvalidError(
                f"record_mib={self.record_mib} is above {RECORD_MIB_MAX}: keep fewer "
                "of the last events"
            )
        check_kind(bool, record_on_signal=self.record_on_signal)


class ConnectOptions(TypedDict, total=False):
    """The keywords of `jccl.connect` that others hand on to it."""

    token: str | None
    deadline: float | None
    security: Security
    waits: Waits
    transport: Transport
    reactions: Reactions
