"""Outer optimizers: how the committed mean of the pseudo-gradients moves the anchor.

`nesterov` and `sgd` run in a kernel of the transport that never contracts a multiply
and an add into one rounding, so every peer gets the same bits on any processor. Any
other optax transform runs in XLA, whose rounding depends on processor and version. Its
rounds carry a fingerprint of these, and peers with different fingerprints are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import platform
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax

from jccl import _ops


@dataclasses.dataclass(frozen=True)
class Outer:
    """b <- momentum * b + delta; anchor <- anchor - learning_rate * step, where step is
    delta + momentum * b (nesterov) or b. Made by `nesterov` and `sgd`."""

    learning_rate: float
    momentum: float = 0.0
    is_nesterov: bool = False
    route: str = dataclasses.field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not np.isfinite(self.learning_rate) or self.learning_rate <= 0:
            raise ValueError(
                f"outer learning rate {self.learning_rate} is not positive"
            )
        if not 0 <= self.momentum < 1:
            raise ValueError(f"outer momentum {self.momentum} is not in [0, 1)")

    def init(self, anchor: Any) -> Any:
        for path, leaf in jax.tree_util.tree_leaves_with_path(anchor):
            if leaf.dtype != jnp.float32:
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                raise TypeError(
                    f"parameter '{name}' is {leaf.dtype}; jccl.nesterov and jccl.sgd "
                    "work on float32 anchors: use an optax outer optimizer for others"
                )
        return jax.tree.map(jnp.zeros_like, anchor) if self.momentum else ()

    def step(
        self, anchor: Any, state: Any, delta: Any, status: jax.Array
    ) -> tuple[Any, Any]:
        """The new anchor and state if `status` is that of a committed round, else the
        old.
        """
        moved = _ops.outer_step(
            anchor,
            state if self.momentum else None,
            delta,
            status=status,
            learning_rate=self.learning_rate,
            decay=self.momentum,
            nesterov=self.is_nesterov,
            route=self.route,
        )
        return moved.anchor, moved.momentum if self.momentum else ()

    def fingerprint(self, anchor: Any) -> str:
        return f"{self!r}"


def nesterov(learning_rate: float = 0.7, momentum: float = 0.9) -> Outer:
    """Nesterov momentum as in the DiLoCo papers, bit-equal on every processor.

    The published momentum is 0.9. Small models with few peers do better with less.
    """
    return Outer(learning_rate, momentum, True)


def sgd(learning_rate: float = 1.0, momentum: float = 0.0) -> Outer:
    """Plain or heavy-ball outer step. `sgd(1.0)` is parameter averaging."""
    return Outer(learning_rate, momentum)


@dataclasses.dataclass(frozen=True)
class XlaOuter:
    """An optax transform as the outer optimizer."""

    transform: optax.GradientTransformation

    def init(self, anchor: Any) -> Any:
        return self.transform.init(anchor)

    def step(
        self, anchor: Any, state: Any, delta: Any, status: jax.Array
    ) -> tuple[Any, Any]:
        moved, renewed = self.transform.update(delta, state, anchor)
        committed = _ops.committed(status)
        keep = functools.partial(jnp.where, committed)
        anchor = jax.tree.map(
            lambda a, m: keep((a + m).astype(a.dtype), a), anchor, moved
        )
        return anchor, jax.tree.map(keep, renewed, state)

    def fingerprint(self, anchor: Any) -> str:
        """Everything the bits of this outer step depend on, in words."""
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), anchor)
        state = jax.eval_shape(self.transform.init, shapes)
        jaxpr = jax.make_jaxpr(self.transform.update)(shapes, state, shapes)
        digest = hashlib.sha256(str(jaxpr.jaxpr).encode())
        for constant in jaxpr.consts:
            digest.update(np.asarray(constant).tobytes())
        return f"{environment()}, outer {digest.hexdigest()[:16]}"


def environment() -> str:
    """What the last bits of XLA's arithmetic depend on."""
    device = jax.devices()[0].device_kind
    return f"jaxlib {jaxlib.__version__}, {device}, cpu {processor()}"


@functools.cache
def processor() -> str:
    """Names the instruction sets of this processor; XLA compiles for all of them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    keys = ("flags", "Features")
    lines = [line for line in text.splitlines() if line.startswith(keys)]
    flags = " ".join(sorted(set(lines[0].split(":", 1)[1].split()))) if lines else ""
    return f"{platform.machine()} {hashlib.sha256(flags.encode()).hexdigest()[:12]}"


def resolve(
    outer: Outer | optax.GradientTransformation | None, comm: Any = None
) -> Outer | XlaOuter:
    """What `jccl.diloco(outer=...)` accepts; None is `nesterov(0.7, 0.9)`. The step
    takes the route of the communicator. Its bits don't depend on that route.
    """
    if outer is None:
        outer = nesterov()
    if isinstance(outer, Outer):
        return dataclasses.replace(outer, route=getattr(comm, "route", ""))
    if hasattr(outer, "init") and hasattr(outer, "update"):
        return XlaOuter(outer)
    if callable(outer):
        raise TypeError(uncalled("outer", outer))
    raise TypeError(
        f"outer is {type(outer).__name__}: expected jccl.nesterov, jccl.sgd or an "
        "optax transform"
    )


def checked_inner(inner: Any) -> optax.GradientTransformationExtraArgs:
    """What each peer does by itself; TypeError if it is no optimizer."""
    if hasattr(inner, "init") and hasattr(inner, "update"):
        return optax.with_extra_args_support(inner)
    if callable(inner):
        raise TypeError(uncalled("inner", inner))
    raise TypeError(
        f"inner is {type(inner).__name__}: expected an optax transform, such as "
        "optax.adamw(1e-3)"
    )


def uncalled(name: str, maker: Any) -> str:
    """Of a function that makes optimizers, given in place of one."""
    made = getattr(maker, "__name__", type(maker).__name__)
    return (
        f"{name}={made} is a function that makes an optimizer, and was not called: "
        f"write {name}={made}(...), with its learning rate"
    )
