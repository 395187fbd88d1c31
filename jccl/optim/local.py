"""How an optimizer's parameters lie on local devices, and its collectives over them.

There are three ways: on one device; mapped over several by `shard_map` or `pmap`, where
the caller holds a block of each leaf; or spread by XLA's partitioner over a mesh, where
the program has whole leaves (`jax.sharding.NamedSharding`). In the last way each native
op is mapped over the mesh by itself, so that devices move what they hold. XLA handles
all the rest. Traced code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jccl import _geometry, _mesh, _native, _ops
from jccl._host import path_text
from jccl._marks import Marks
from jccl._results import HasRegistryId, Published, Reduced, Started
from jccl._round import Place, in_groups
from jccl.optim.outer import Outer, XlaOuter

WHOLE: Any = PartitionSpec()


class Local(NamedTuple):
    """`axis_name`: over which mapped devices train apart. `specs`: how leaves are cut.
    `spread_over`: the mesh of a program that is not mapped over it."""

    axis_name: Any = ()
    specs: Any = None
    spread_over: Mesh | None = None

    @classmethod
    def of(cls, axis_name: Any, specs: Any) -> Local:
        """Of what users give: PartitionSpecs of a mapped program, or NamedShardings."""
        kinds = _leaves(specs)
        named = [one for one in kinds if isinstance(one, NamedSharding)]
        if not named:
            return cls(axis_name, specs)
        if len(named) < len(kinds):
            raise TypeError(
                "jccl: specs= holds NamedShardings and others; it is either "
                "PartitionSpecs, of a program inside shard_map, or the shardings of "
                "all parameters, as jax.tree.map(lambda x: x.sharding, params)"
            )
        if _geometry.axes_of(axis_name):
            raise ValueError(
                "jccl: axis_name= is for devices that train apart inside shard_map; "
                "with NamedShardings in specs= all devices take the same steps"
            )
        over = named[0].mesh
        if any(one.mesh != over for one in named):
            raise ValueError(
                "jccl: the shardings in specs= lie on different meshes; put all "
                "parameters on one, replicated where they are not cut"
            )
        if not isinstance(over, Mesh):
            raise TypeError(
                "jccl: the shardings in specs= are of a mesh without devices"
            )
        cut = jax.tree.map(lambda one: one.spec, specs, is_leaf=_is_sharding)
        return cls((), cut, over)

    @property
    def whole(self) -> bool:
        """Whether the program that holds the optimizer sees whole leaves."""
        apart = _geometry.axes_of(self.axis_name) or self.specs is not None
        return self.spread_over is not None or not apart

    def placed(self, tree: Any, params: Any) -> Any:
        """Where the parameters are cut, what is like them is cut alike."""
        if self.spread_over is None:
            return tree
        over = self.spread_over
        specs = _mesh.specs_like(tree, params, self.specs)
        return jax.tree.map(
            lambda x, spec: jax.device_put(x, NamedSharding(over, spec)), tree, specs
        )

    # ---- collectives; `like` are the parameters: leaves of one path and shape are cut
    # as they are

    def all_reduce(
        self, tree: Any, comm: HasRegistryId, *, like: Any, **options: Any
    ) -> Reduced:
        if self._on_one_device():
            return _ops.all_reduce(tree, comm, **in_groups(**options))
        specs = _mesh.specs_like(tree, like, self.specs)

        def call(tree: Any, **options: Any) -> Reduced:
            options |= {"axis_name": self.axis_name, "specs": specs}
            return _mesh.all_reduce(tree, comm, **in_groups(**options))

        out = Reduced(specs, WHOLE, WHOLE)
        return self._each(call, (tree,), (specs,), out, options)

    def start(
        self, tree: Any, comm: HasRegistryId, *, like: Any, **options: Any
    ) -> Started:
        if self._on_one_device():
            return _ops.start(tree, comm, **in_groups(**options))
        specs = _mesh.specs_like(tree, like, self.specs)

        def call(tree: Any, **options: Any) -> Started:
            options |= {"axis_name": self.axis_name, "specs": specs}
            return _mesh.start(tree, comm, **in_groups(**options))

        return self._each(call, (tree,), (specs,), Started(WHOLE, (), WHOLE), options)

    def done(
        self,
        handle: jax.Array,
        shaped: Any,
        comm: HasRegistryId,
        *,
        like: Any,
        after: Any,
        tag: str,
    ) -> Reduced:
        """`shaped` as what was started; `after` has been computed before."""
        if self._on_one_device():
            return _ops.done(handle, shaped, comm, after=after, tag=tag)
        specs = _mesh.specs_like(shaped, like, self.specs)
        axes = self.axis_name

        def call(handle: jax.Array, shaped: Any, after: Any) -> Reduced:
            place = Place(axis_name=axes, specs=specs)
            return _mesh.done(handle, shaped, comm, after=after, tag=tag, place=place)

        first = _mesh.specs_like(after, like, self.specs)
        out = Reduced(specs, WHOLE, WHOLE)
        return self._each(call, (handle, shaped, after), (WHOLE, specs, first), out)

    def publish(
        self, tree: Any, comm: HasRegistryId, *, like: Any, **options: Any
    ) -> Published:
        if self._on_one_device():
            return _ops.publish(tree, comm, **options)
        specs = _mesh.specs_like(tree, like, self.specs)
        call = functools.partial(_mesh.publish, comm=comm, specs=specs)
        out = Published(specs, WHOLE, WHOLE)
        return self._each(call, (tree,), (specs,), out, options)

    def marks(self, tree: Any, comm: HasRegistryId, *, like: Any) -> Marks:
        if self._on_one_device():
            return _ops.marks(tree, comm)
        specs = _mesh.specs_like(tree, like, self.specs)
        call = functools.partial(_mesh.marks, comm=comm, specs=specs)
        return self._each(call, (tree,), (specs,), Marks(WHOLE))

    def state(self, tree: Any, comm: HasRegistryId, *, like: Any) -> Any:
        """What a round takes as `state`."""
        return tree if self._on_one_device() else self.marks(tree, comm, like=like)

    def outer_step(
        self,
        outer: Outer | XlaOuter,
        anchor: Any,
        state: Any,
        delta: Any,
        status: jax.Array,
        like: Any,
    ) -> tuple[Any, Any]:
        """`outer.step`; that of the kernel goes element by element, so by blocks."""
        if self._on_one_device() or isinstance(outer, XlaOuter):
            return outer.step(anchor, state, delta, status)
        cut = [_mesh.specs_like(x, like, self.specs) for x in (anchor, state, delta)]
        return self._each(
            outer.step, (anchor, state, delta, status), (*cut, WHOLE), tuple(cut[:2])
        )

    def _each(
        self,
        call: Callable[..., Any],
        trees: tuple[Any, ...],
        specs: tuple[Any, ...],
        out: Any,
        options: dict[str, Any] | None = None,
    ) -> Any:
        """By each device of the mesh, on its blocks: of a mapped program the caller is
        one already. Options that are arrays are alike on all of them."""
        options = options or {}
        if _native.mapped_axes():
            return call(*trees, **options)
        arrays = {k: v for k, v in options.items() if _holds_arrays(v)}
        rest = {k: v for k, v in options.items() if k not in arrays}

        def body(arrays: dict[str, Any], *blocks: Any) -> Any:
            return call(*blocks, **arrays, **rest)

        return jax.shard_map(
            body,
            mesh=self.spread_over,
            in_specs=(WHOLE, *specs),
            out_specs=out,
            check_vma=False,
        )(arrays, *trees)

    def _on_one_device(self) -> bool:
        if _native.mapped_axes():
            return False
        if not self.whole:
            raise ValueError(
                "jccl: axis_name= and specs= are for steps mapped over local devices: "
                "call the step inside shard_map or pmap, or leave them out. In a plain "
                "jit give specs= the shardings of the parameters, as "
                "jax.tree.map(lambda x: x.sharding, params)"
            )
        return self.spread_over is None


class Places:
    """The `Local` of an optimizer: what its user said, else what `init` was shown."""

    def __init__(self, local: Local, alone: dict[str, bool] | None = None):
        """`alone`: options that need one device or shard_map, and which are set."""
        self.local = local
        self._is_said = local != Local()
        self._alone = [name for name, is_set in (alone or {}).items() if is_set]
        self._check()

    def _check(self) -> None:
        if self.local.spread_over is not None and self._alone:
            raise NotImplementedError(
                f"{self._alone[0]} with parameters that lie on several devices of a "
                "mesh: leave it out, or keep the parameters on one device"
            )

    def look_at(self, params: Any) -> None:
        """Arrays that lie on a mesh already, outside of any program, say how they are
        cut; the update that follows may be traced, where nothing says so."""
        flat = jax.tree_util.tree_leaves_with_path(params)
        traced = any(isinstance(x, jax.core.Tracer) for _, x in flat)
        if self._is_said or traced:
            return
        lie = [_spreads(getattr(x, "sharding", None)) for _, x in flat]
        spread = bool(lie) and all(lie)
        if any(lie) and not spread:
            name = path_text(flat[lie.index(False)][0])
            raise ValueError(
                f"jccl: parameter '{name}' lies on one device, and others on a mesh: "
                "put all of them there, replicated where they are not cut"
            )
        cut = jax.tree.map(lambda x: x.sharding, params) if spread else None
        self.local = Local.of((), cut)
        self._check()


def _spreads(sharding: Any) -> bool:
    return isinstance(sharding, NamedSharding) and sharding.mesh.size > 1


def _is_sharding(node: Any) -> bool:
    return node is None or isinstance(node, NamedSharding | PartitionSpec)


def _leaves(specs: Any) -> list[Any]:
    if specs is None:
        return []
    return jax.tree.leaves(specs, is_leaf=_is_sharding)


def _holds_arrays(value: Any) -> bool:
    return any(isinstance(x, jax.Array) for x in jax.tree.leaves(value))
