"""Where a call of a public verb goes: outside programs, into one, or over a mesh.

JAX says whether the caller is traced and over which mesh axes it is mapped. Any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import jax
import numpy as np

from jccl import _native
from jccl._geometry import Axes, axes_of
from jccl._results import HasRegistryId
from jccl._round import Place, Where
from jccl.encoding import Encoded

Op = Literal["mean", "sum", "min", "max", "prod"]


class _OfFields(Protocol):
    """A dataclass, as a Flax state is."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Flattened(Protocol):
    """A class of `jax.tree_util.register_pytree_node_class`."""

    def tree_flatten(self) -> Any: ...


# What says by its type that a call is made outside programs: whose result is `Result`.
Hosted: TypeAlias = (
    "np.ndarray[Any, Any] | np.generic | float | Mapping[Any, Hosted]"
    " | Sequence[Hosted]"
)
# What may be traced or not: `Result | Reduced`, which have the same names. No array of
# numpy is one of these, else type checkers would find two kinds that fit, and choose
# none.
Arrays: TypeAlias = (
    "jax.Array | Encoded | None | Mapping[Any, Any] | Sequence[Any] | _OfFields"
    " | _Flattened"
)


def where_of(comm: HasRegistryId | None, *traced_too: Any, place: Place) -> Where:
    """Of a call with these arrays. A token comes from a program's op, so a call that
    has one is such an op too, also where JAX runs it at once."""
    named = place.axis_name is not None or place.specs is not None
    of_parts = hasattr(comm, "comms")
    if _native.mapped_axes():
        if named or of_parts or _native.local_axis_size() > 1:
            return Where.MESH
    elif named:
        raise ValueError(
            "jccl: axis_name= and specs= are for programs mapped over local devices: "
            "make the call inside shard_map or pmap, or leave them out"
        )
    if place.token is not None or traced(*traced_too):
        return Where.PROGRAM
    if of_parts:
        raise TypeError(
            "jccl: a communicator of several parts is for calls inside shard_map"
        )
    return Where.HOST


def traced(*trees: Any) -> bool:
    """Whether the call is part of a program. Arrays that a jitted function closes over
    are not traced, but a call on them is meant for every run, not for the trace. Nor
    are operands that vmap does not batch, and the call is refused there."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees)):
        return True
    traces = _native.current_traces()
    return any(
        _native.is_program_trace(one) or _native.is_batch_trace(one) for one in traces
    )


def reduced_axes(axis_name: Any) -> Axes:
    """The axes over which local devices reduce: those named, else all of the mesh."""
    return tuple(_native.mapped_axes()) if axis_name is None else axes_of(axis_name)
