"""A run on Ray: an actor for each peer. A peer that dies, or whose node dies, restarts.

The driver holds the master, so the run survives the loss of every node but its own. Ray
is imported when needed. Call it from one thread of the driver.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jccl import _native
from jccl._faults import typed_errors
from jccl.errors import InvalidError
from jccl.settings import read_token

CONNECT_S = 60.0  # actors start when Ray has room for them

_log = logging.getLogger("jccl")


def run(
    function: Callable[..., Any],
    peers: int,
    *,
    args: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    restarts: int = 3,
    store: str = "memory:",
) -> list[Any]:
    """Runs a function as every peer of a new run, and returns what each returns.

    Args:
        function: calls `jccl.connect()` without arguments. It is pickled, and called
            in the main thread of an actor. JCCL_PEER_INDEX says which peer it is.
        peers: number of peers.
        args: arguments of the function.
        options: options of each actor, as for `ray.remote`: `num_gpus`, `resources`, ….
        restarts: how often each peer is restarted when its process or its node dies.
            After a peer has returned, no peer is restarted: the others are about to
            end.
        store: the master's journal, as for `jccl master`. With `sqlite:PATH` a driver
            that is started again continues the run of the journal. The run's secret is
            in JCCL_TOKEN or JCCL_TOKEN_FILE, else in the file PATH.secret, which only
            its owner can read and which the first driver makes.

    Returns:
        The result of each peer, in order; None for a peer that died after another
        returned.

    Errors:
        What the function raises, as Ray raises it: an error of the program ends the
        run. RuntimeError if a peer died too often. InvalidError.

    Example:
        >>> losses = jccl.ray.run(train, 4, options={"num_gpus": 1})
    """
    if peers < 1 or restarts < 0:
        raise InvalidError(
            f"peers={peers}, restarts={restarts}: give at least 1 peer and 0 restarts"
        )
    try:
        import ray
    except ImportError:
        raise ImportError("jccl.ray needs Ray: pip install 'jccl[ray]'") from None
    ray.init(ignore_reinit_error=True)
    secret = _secret_of(store)
    with typed_errors():
        master = _native.core().Master.start(
            bind=f"{ray.util.get_node_ip_address()}:0",
            token=secret,
            store=store,
            start_peers=peers,
        )
    group = _Group(master.address, secret, peers, dict(options or {}))
    try:
        return group.run(function, tuple(args), restarts)
    finally:
        group.stop()
        master.stop()


def _secret_of(store: str) -> str:
    """Of the run whose journal this is: another one could not continue it."""
    given = read_token(None, None)
    kind, _, path = store.partition(":")
    if given or kind != "sqlite":
        return given or str(_native.core().new_token())
    kept = Path(f"{path}.secret")
    try:
        file = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(None, kept)
    secret = str(_native.core().new_token())
    with os.fdopen(file, "w") as out:
        out.write(secret + "\n")
    return secret


class _Peer:
    """What an actor holds."""

    def work(
        self, env: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        os.environ.update(env)
        return function(*args)


class _Group:
    """The actors of the peers, and how often each has begun."""

    def __init__(
        self, master: str, secret: str, peers: int, options: dict[str, Any]
    ) -> None:
        import ray

        self._ray = ray
        self._master = master
        self._secret = secret
        # A new actor, and not Ray's own restart: it gets an environment of its own.
        fixed = {"max_restarts": 0, "max_task_retries": 0}
        self._remote = ray.remote(**{"num_cpus": 1, **options, **fixed})(_Peer)
        self._actors: list[Any] = [None] * peers
        self._lives = [0] * peers

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], restarts: int
    ) -> list[Any]:
        def start(index: int) -> Any:
            self._actors[index] = self._remote.remote()
            env = self._environment(index)
            return self._actors[index].work.remote(env, function, args)

        results: list[Any] = [None] * len(self._actors)
        waiting = {start(index): index for index in range(len(results))}
        returned = 0
        while waiting:
            (ended,), _ = self._ray.wait(list(waiting), num_returns=1)
            index = waiting.pop(ended)
            try:
                results[index] = self._ray.get(ended)
                returned += 1
                continue
            except self._ray.exceptions.RayActorError as death:
                why = str(death).partition("\n")[0]
            self._lives[index] += 1
            if returned:
                _log.warning("peer-%d died when others had ended: %s", index, why)
            elif self._lives[index] > restarts:
                times = self._lives[index]
                raise RuntimeError(f"peer-{index} died {times} times, now: {why}")
            else:
                _log.warning("peer-%d died and is started again: %s", index, why)
                waiting[start(index)] = index
        return results

    def _environment(self, index: int) -> dict[str, str]:
        site = f"peer-{index}"
        token = _native.core().make_token(self._secret, role="peer", uses=0, site=site)
        return {
            "JCCL_MASTER": self._master,
            "JCCL_TOKEN": token,
            "JCCL_SITE": site,
            "JCCL_START_PEERS": str(len(self._actors)),
            "JCCL_PEERS": str(len(self._actors)),
            "JCCL_PEER_INDEX": str(index),
            "JCCL_PEER_LIFE": str(self._lives[index]),
            "JCCL_CONNECT_TIMEOUT": str(CONNECT_S),
        }

    def stop(self) -> None:
        for actor in self._actors:
            if actor is not None:
                self._ray.kill(actor)
