"""A training state as named arrays: which of them all peers share, and which are own.

Takes what `jccl.sync_state` takes: a TrainState, `(params, opt_state)`, an nnx pair or
any pytree with an optimizer state of jccl in it. Arrays go to and come from host
memory; where they lay, and how they were sharded, restored ones lie again. Refuses
arrays of which other processes hold parts, but in `spread`. Called between steps, by
one thread.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jccl import snapshot
from jccl._host import path_text
from jccl.checkpoint.portions import box_of
from jccl.checkpoint.reading import Arrays
from jccl.checkpoint.records import OWN, SHARED, Leaf
from jccl.checkpoint.writing import Taken
from jccl.communicator import Communicator
from jccl.errors import MismatchError
from jccl.sites import ShardedCommunicator


class _Place:
    """In the place of a leaf: which one it is."""

    def __init__(self, index: int, leaf: Any) -> None:
        self.index = index
        self.shape, self.dtype = _form(leaf)
        self.size = math.prod(self.shape)


class Split:
    """Of one state. `tags` are those of its shared parts, in order."""

    def __init__(self, state: Any, comm: Communicator | ShardedCommunicator) -> None:
        self._pair = state if snapshot.is_nnx_pair(state) else None
        tree = snapshot.nnx_tree(state) if self._pair else state
        flat, self._treedef = jax.tree_util.tree_flatten_with_path(tree)
        self.leaves = [leaf for _, leaf in flat]
        for path, leaf in flat:
            if isinstance(leaf, jax.core.Tracer):
                raise TypeError(
                    f"leaf '{path_text(path)}' is traced: save and restore between "
                    "steps"
                )
            self.check(path_text(path), leaf)
        self._comm = comm
        self._nodes = snapshot.find(tree)
        if not self._nodes:
            raise ValueError(
                "this state holds no state of jccl.diloco or another optimizer of "
                "jccl, so it is not known which part of it all peers share"
            )
        places = [_Place(i, leaf) for i, leaf in enumerate(self.leaves)]
        marked = snapshot.find(jax.tree.unflatten(self._treedef, places))
        self._layouts = [
            snapshot.declared_for(node, comm, None).layout for node in self._nodes
        ]
        self._shared: dict[str, tuple[Any, dict[str, int]]] = {}
        keys: set[int] = set()
        for layout, node in zip(self._layouts, marked, strict=True):
            keys.update(place.index for place in jax.tree.leaves(node.key))
            for tag, part in zip(layout.tags(), layout.shared(node), strict=True):
                named, treedef = jax.tree_util.tree_flatten_with_path(part)
                pairs = [(_name(tag, path), place.index) for path, place in named]
                self._shared[tag] = (treedef, _once(pairs))
        taken = {i for _, names in self._shared.values() for i in names.values()}
        rest = [(i, path) for i, (path, _) in enumerate(flat) if i not in taken | keys]
        self._own = _once([(path_text(path) or "state", i) for i, path in rest])

    @property
    def tags(self) -> list[str]:
        return list(self._shared)

    def check(self, name: str, leaf: Any) -> None:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            raise NotImplementedError(
                f"leaf '{name}' lies on devices of several processes, and this "
                "communicator is of one: join with jccl.sites.connect"
            )

    def local_marks(self) -> dict[str, int]:
        """Of leaves in which the site's processes may differ by mistake."""
        return {}

    def take(self, own: bool) -> Taken:
        """What is to be saved, by names and in the order in which the transport knows
        the leaves; without the site's own part if it is not wanted."""
        shared = {t: self._host(names) for t, (_, names) in self._shared.items()}
        items = {SHARED: {n: a for tag in shared.values() for n, a in tag.items()}}
        if own:
            items[OWN] = self._host(self._own)
        return Taken(self.whole_leaves(), (shared,), items, None)

    def whole_leaves(self) -> dict[str, tuple[Leaf, ...]]:
        return {
            tag: tuple(self.leaf(name, i) for name, i in names.items())
            for tag, (_, names) in self._shared.items()
        }

    def leaf(self, name: str, i: int) -> Leaf:
        shape, dtype = _form(plain(self.leaves[i]))
        return Leaf(name, dtype.name, shape)

    def _host(self, names: Mapping[str, int]) -> dict[str, np.ndarray]:
        return {name: to_host(self.leaves[i]) for name, i in names.items()}

    # ---- the way back ----------------------------------------------------------------

    def with_all(self, shared: Arrays, own: Arrays) -> Any:
        """The state with these arrays."""
        leaves = list(self.leaves)
        parts = [(names, shared) for _, names in self._shared.values()]
        for names, arrays in (*parts, (self._own, own)):
            for name, i in names.items():
                leaves[i] = _placed(name, leaves[i], arrays)
        tree = jax.tree.unflatten(self._treedef, leaves)
        return tree if self._pair is None else snapshot.nnx_with(self._pair, tree)

    def with_shared(self, shared: Arrays) -> Any:
        """The state of a peer that begins with this shared part: parameters are the
        anchor, and what is its own is as it is now."""
        trees = {}
        for tag, (treedef, names) in self._shared.items():
            fresh = [_placed(n, self.leaves[i], shared) for n, i in names.items()]
            trees[tag] = jax.tree.unflatten(treedef, fresh)
        adopted = []
        for layout, node in zip(self._layouts, self._nodes, strict=True):
            parts = [trees[tag] for tag in layout.tags()]
            adopted.append((layout.adopt(node, parts), True))
        if self._pair is not None:
            return snapshot.nnx_put_back(self._pair, self._nodes, adopted)
        state = jax.tree.unflatten(self._treedef, self.leaves)
        return snapshot.put_back(state, snapshot.find(state), adopted)


def counters(state: Any) -> list[Any]:
    """Of the rounds that are in it; with them the step has ended."""
    tree = state[1].opt_state if snapshot.is_nnx_pair(state) else state
    return [node.jccl_shared()["rounds"] for node in snapshot.find(tree)]


def rounds(state: Any) -> int:
    """All of them that are in the state, of all its parts."""

    def here(x: Any) -> Any:
        return x.addressable_data(0) if isinstance(x, jax.Array) else x

    return sum(int(np.sum(here(x))) for x in jax.tree.leaves(counters(state)))


def _once(pairs: list[tuple[str, int]]) -> dict[str, int]:
    names = dict(pairs)
    if len(names) < len(pairs):
        name = next(n for n, i in pairs if names[n] != i)
        raise ValueError(f"two leaves have the name '{name}': rename one of the keys")
    return names


def _name(tag: str, path: Any) -> str:
    return f"{tag}/{path_text(path)}".rstrip("/")


def _form(leaf: Any) -> tuple[tuple[int, ...], np.dtype]:
    if _is_key(leaf):
        return leaf.shape, np.dtype(np.uint32)
    return np.shape(leaf), np.dtype(
        leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
    )


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def plain(leaf: Any) -> Any:
    """A random key's data; other leaves as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def to_host(leaf: Any) -> np.ndarray:
    """A copy: the next step may be given the leaf's memory."""
    return np.array(plain(leaf), copy=True)


def _placed(name: str, like: Any, arrays: Arrays) -> Any:
    """The array of that name, where and what `like` is."""
    bits = plain(like)
    shape, dtype = _form(bits)
    if name not in arrays:
        if 0 in shape:  # orbax keeps no array without elements
            return like
        raise MismatchError(f"the checkpoint has no leaf '{name}': another model?")
    if not hasattr(bits, "dtype"):  # a number of Python's
        return type(bits)(arrays[name].item())
    if (found := arrays.form(name)) != (shape, dtype):
        raise MismatchError(
            f"leaf '{name}' is {found[1]}{list(found[0])} in the checkpoint and "
            f"{dtype}{list(shape)} here: another model or optimizer?"
        )
    if not isinstance(bits, jax.Array):
        return arrays[name]
    on_mesh = isinstance(bits.sharding, jax.sharding.NamedSharding)
    if len(bits.sharding.device_set) == 1 and not on_mesh:
        made = jax.numpy.asarray(arrays[name])
    else:  # each device's own piece alone
        made = jax.make_array_from_callback(
            shape,
            bits.sharding,
            lambda index: arrays.read(name, box_of(index or (), shape)),
        )
    if _is_key(like):
        return jax.random.wrap_key_data(made, impl=jax.random.key_impl(like))
    return made


# ---- the user's data -----------------------------------------------------------------


def encoded(data: Any) -> Any:
    """JSON for a cursor, a random key's data, a file's name: numbers, text, arrays, and
    lists and dicts of them."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, dict):
        if not all(isinstance(key, str) for key in data):
            raise TypeError("data= holds a dict whose keys are not all strings")
        return {key: encoded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [encoded(value) for value in data]
    if _is_key(data):
        raise TypeError(
            "data= holds a random key: save jax.random.key_data(key), and wrap the "
            "restored array with jax.random.wrap_key_data"
        )
    if isinstance(data, np.ndarray | np.generic | jax.Array):
        array = np.asarray(data)
        raw = base64.b64encode(array.tobytes()).decode()
        return {"array": raw, "dtype": array.dtype.name, "shape": list(array.shape)}
    raise TypeError(
        f"data= holds a {type(data).__name__}, which cannot be saved; use numbers, "
        "strings, arrays, and lists and dicts of them"
    )


def decoded(said: Any) -> Any:
    """Arrays come back as numpy's, tuples as lists."""
    if isinstance(said, list):
        return [decoded(value) for value in said]
    if not isinstance(said, dict):
        return said
    if set(said) == {"array", "dtype", "shape"} and isinstance(said["array"], str):
        raw = base64.b64decode(said["array"])
        dtype = jax.numpy.dtype(said["dtype"])
        return np.frombuffer(raw, dtype).reshape(said["shape"]).copy()
    return {key: decoded(value) for key, value in said.items()}
