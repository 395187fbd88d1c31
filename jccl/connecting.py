"""Joining a run: the arguments of `jccl.connect`, and what the environment gives."""

from __future__ import annotations

import os
from collections.abc import Sequence

from jccl import _native, _processes, _watch, callback
from jccl._faults import typed_errors
from jccl._leaving import Policy
from jccl._leaving import check_policy as check_term
from jccl._options import check_seconds, check_text
from jccl.communicator import Communicator
from jccl.settings import connect_options, env_default, read_token

CONNECT_S = 8.0


def connect(
    master: str | None = None,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    site: str | None = None,
    shard: int | None = None,
    shards: int | None = None,
    advertise: Sequence[str] | str | None = None,
    bind: str | None = None,
    start_peers: int | None = None,
    deadline: float | None = None,
    connect_timeout: float | None = None,
    master_grace: float = 60.0,
    stripes: int = 0,
    io_threads: bool | None = None,
    insecure: bool | None = None,
    route: str | None = None,
    on_fault: str | None = None,
    on_term: Policy | None = None,
    record: str | os.PathLike[str] | None = None,
    record_mib: int = 2,
    record_on_signal: bool | None = None,
) -> Communicator:
    """Joins a run.

    Args:
        master: "host:port", several by commas; default JCCL_MASTER.
        token: a token of the run (or `token_file`); default JCCL_TOKEN,
            JCCL_TOKEN_FILE. Off loopback one is required unless `insecure`.
        key_file: this peer's key pair, created if missing; default JCCL_KEY_FILE, else
            a fresh one. With it a restarted process gets its seat at once.
        site: peers with one site name live and die together; default JCCL_SITE, else a
            site of its own. `shard` of `shards` is this peer's place in it.
        advertise: addresses where other peers may reach this one, tried in order.
        bind: listen address; "none" for a peer that can only dial out.
        start_peers: number of sites that the first round waits for; default
            JCCL_START_PEERS.
        deadline: seconds, for every call that names none; default JCCL_DEADLINE,
            else 300.
        connect_timeout: seconds to reach the master; default JCCL_CONNECT_TIMEOUT,
            else 8. Set more if peers may start before the master.
        master_grace: seconds to wait for a lost master to come back.
        stripes: connections per link; 0 chooses.
        io_threads: whether two more threads move large data; default JCCL_IO_THREADS,
            else if there are three cores for each peer of this machine.
        insecure: allow plain connections off loopback; default JCCL_INSECURE.
        route: how compiled programs reach the transport: "ffi", "buffer_callback" (CPU)
            or "io_callback"; default JCCL_ROUTE, else FFI where XLA has it, else
            `io_callback`. All give the same bits.
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
        record_mib: how much of the last events is kept for them, in memory; 0: none.
        record_on_signal: whether SIGUSR1 asks for a recording. The signal must be one
            that the program has no handler for. Default JCCL_RECORD_ON_SIGNAL.

    Errors:
        MasterLostError (unreachable; says what was tried), VersionError, WrongRunError,
        AuthError, IoError (port in use), InvalidError (also if an interactive session
        joins a second time).

    Example:
        >>> with jccl.connect("127.0.0.1:29400") as comm:
        ...     mean = comm.all_reduce(gradients).value
    """
    _processes.refuse_worker()
    texts = {"master": master, "token": token, "site": site, "bind": bind}
    for name, text in texts.items():
        check_text(name, text)
    deadline = env_default(deadline, "JCCL_DEADLINE", float)
    check_seconds(deadline)
    chosen = callback.check_route(env_default(route, "JCCL_ROUTE"))
    policy = _watch.check_policy(env_default(on_fault, "JCCL_ON_FAULT"))
    term = check_term(env_default(on_term, "JCCL_ON_TERM"))
    options = connect_options(
        {
            "master": master,
            "token": read_token(token, token_file),
            "key_file": key_file,
            "insecure": insecure,
            "site": site,
            "shard": shard,
            "shards": shards,
            "bind": bind,
            "advertise": advertise,
            "start_peers": start_peers,
            "stripes": stripes,
            "io_threads": io_threads,
            "deadline": deadline,
            "connect_timeout": seconds_to_connect(connect_timeout),
            "master_grace": master_grace,
            "record": record,
            "record_mib": record_mib,
            "record_on_signal": record_on_signal,
        }
    )
    place = options["master"], options["site"], options["shard"]
    _processes.refuse_twice(*place)
    with typed_errors():
        core = _native.core().Communicator.connect(**options)
        name = options["site"] or f"peer-{core.attributes().incarnation:016x}"
    watcher = _watch.Watcher(core, name, policy, term).start()
    comm = Communicator(core, chosen, watcher, options["site"])
    _processes.joined(comm, *place)
    return comm


def seconds_to_connect(given: float | None) -> float:
    """Short: a wrong address is said while whoever typed it still looks."""
    chosen = env_default(given, "JCCL_CONNECT_TIMEOUT", float)
    return CONNECT_S if chosen is None else chosen
