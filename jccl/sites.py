"""Sites of several processes, each one JAX world (`jax.distributed`) with a mesh.

Every site cuts its leaves into the same number of parts. Each process carries its own
parts across the wide area: the only process of a site carries all, each of two carries
half. A site's rounds have one outcome. A leaf that an axis shards must be sharded on
all sites, along the same dimension. Only for programs under `shard_map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jccl._mesh_call import share_state
from jccl._options import Restore, number_of_wish
from jccl._peer_options import ConnectOptions, Site
from jccl._results import WENT_BACK
from jccl.communicator import Communicator, Synced
from jccl.connecting import connect as open_communicator
from jccl.errors import Code, error_of
from jccl.settings import env_default, name_by_launcher


class ShardedCommunicator:
    """A communicator for each part of the leaves that this process holds. Use it in
    place of a communicator under `shard_map` and in `jccl.diloco`. Made by
    `connect`."""

    def __init__(
        self, comms: Sequence[Communicator], first: int, parts: int, processes: int
    ):
        self.comms = tuple(comms)
        self.first = first
        self.parts = parts
        self.processes = processes

    @property
    def registry_id(self) -> int:
        raise TypeError(
            "jccl: a communicator of several parts is for programs over a mesh: "
            "verbs of jccl inside shard_map, or jccl.diloco of parameters on the "
            "site's mesh. On a mesh of one device say so: place=jccl.Place(specs="
            "jax.tree.map(lambda x: x.sharding, params))"
        )

    @property
    def site(self) -> str:
        return self.comms[0].site

    def attributes(self) -> Any:
        """As `Communicator.attributes`, of the first part that this process holds."""
        return self.comms[0].attributes()

    def close(self) -> None:
        for comm in self.comms:
            comm.close()

    def __enter__(self) -> ShardedCommunicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync_state(
        self,
        tree: Any,
        *,
        tag: str = "state",
        source: bool = False,
        restore: Restore = False,
        deadline: float | None = None,
    ) -> Synced:
        """As `Communicator.sync_state`, with arrays on a mesh over the site's devices.
        Other leaves must be the same on all processes."""
        places = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(tree)]
        on = next((one for one in places if isinstance(one, NamedSharding)), None)
        if on is None:
            raise ValueError(
                "jccl: no array of this state lies on a mesh; put the parameters "
                "there with jax.device_put(x, NamedSharding(mesh, spec))"
            )

        def spec_of(leaf: Any) -> PartitionSpec:
            place = getattr(leaf, "sharding", None)
            return place.spec if isinstance(place, NamedSharding) else PartitionSpec()

        specs = jax.tree.map(spec_of, tree)
        whole = PartitionSpec()
        options: dict[str, Any] = {
            "sync": np.int32(1),
            "source": np.int32(source),
            "restore": np.int32(number_of_wish(restore)),
        }

        def program(tree: Any) -> Any:
            out = share_state(
                tree,
                self,
                jnp.zeros((4,), jnp.int32),
                specs=specs,
                tag=tag,
                deadline=deadline,
                **options,
            )
            return out.value, out.status

        value, status = jax.jit(
            jax.shard_map(
                program,
                mesh=on.mesh,
                in_specs=(specs,),
                out_specs=(specs, whole),
                check_vma=False,
            )
        )(tree)
        code, replaced, revision, how = np.asarray(status).tolist()
        if code not in (Code.OK, Code.RESYNCED):
            raise error_of(code, self.last_fault(tag))
        return Synced(
            value,
            revision,
            self.digest(tag),
            bool(replaced),
            went_back=bool(how & WENT_BACK),
        )

    def digest(self, tag: str = "state") -> str:
        """Digests of the newest published revision, for each part of this process."""
        return " ".join(comm.digest(tag) for comm in self.comms)

    def revision(self, tag: str = "state") -> int:
        return min(comm.revision(tag) for comm in self.comms)

    def last_fault(self, tag: str = "default") -> str:
        texts = [comm.last_fault(tag) for comm in self.comms]
        return next((text for text in texts if text), "")


def connect(
    master: str | None = None,
    *,
    site: str | None = None,
    parts: int,
    process: int | None = None,
    processes: int | None = None,
    **options: Unpack[ConnectOptions],
) -> ShardedCommunicator:
    """Joins a run in which some sites have several processes.

    Args:
        site: the processes of one `jax.distributed` world share this name. Default
            JCCL_SITE; a site of one process may also have its launcher's name for it.
        parts: a multiple of the number of processes of every site of the run.
        process, processes: the place of this process; default JAX's.
        master, options: as in `jccl.connect`.

    Example:
        >>> comm = jccl.sites.connect(site="eu", parts=2)
    """
    at = jax.process_index() if process is None else process
    count = jax.process_count() if processes is None else processes
    if parts % count or not 0 <= at < count:
        raise ValueError(
            f"process {at} of {count} cannot hold its share of parts={parts}: parts "
            "must be a multiple of the processes, and process one of them"
        )
    name = env_default(site, "JCCL_SITE")
    if name is None and count == 1:
        name = name_by_launcher()
    if name is None:
        raise ValueError(
            "this site has no name, by which its processes find each other at the "
            "master: pass site= to jccl.sites.connect, or set JCCL_SITE"
        )
    own = parts // count
    comms = [
        open_communicator(master, site=Site(name, part, parts), **options)
        for part in range(at * own, (at + 1) * own)
    ]
    return ShardedCommunicator(comms, at * own, parts, count)
