"""The only importer of the extension, and the home of what depends on JAX's version.

Registers the FFI targets at the first op inside or outside jit, never at import: a
handler built against newer headers than the running jaxlib would keep the whole CPU
backend from starting. Host calls on numpy arrays work without that. Runs on any thread.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pathlib
import re
from collections.abc import Sequence
from typing import Any


@functools.cache
def core() -> Any:
    """The extension `_core`; ImportError with the cure if it is missing."""
    try:
        return importlib.import_module("jccl._core")
    except ImportError as error:
        raise ImportError(missing_text(error)) from error


def missing_text(error: object) -> str:
    """What to do about an extension that does not load."""
    return (
        f"jccl's native module is missing or does not load ({error}). In a source tree "
        "run `pip install -e .` first; after a plain `pip install .` leave the "
        "repository's folder, whose jccl/ hides the installed package."
    )


_OLDEST_TO_NEWEST = (
    # jaxlib release from which an FFI API minor is served; the last row is open-ended.
    ((0, 4, 34), 1),
    ((0, 8, 1), 2),
    ((0, 9, 1), 3),
    ((0, 11, 1), 4),
    ((0, 12, 0), 5),
)


# The oldest release that tests run on; pyproject.toml names it too.
OLDEST_JAXLIB = (0, 7, 2)


def jaxlib_release() -> tuple[int, ...]:
    from jaxlib import version

    return tuple(int(x) for x in re.findall(r"\d+", version.__version__)[:3])


def runtime_ffi_api_version() -> tuple[int, int]:
    """(major, minor) of the FFI API that the running jaxlib serves.

    Its own headers say; a jaxlib without headers is looked up by its release.
    """
    import jaxlib

    folder = pathlib.Path(jaxlib.__file__).parent / "include"
    header = folder / "xla" / "ffi" / "api" / "c_api.h"
    try:
        text = header.read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = {
        name: int(value)
        for name, value in re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text)
    }
    if len(found) == 2:
        return found["MAJOR"], found["MINOR"]
    release = jaxlib_release()
    minors = [minor for since, minor in _OLDEST_TO_NEWEST if release >= since]
    return (0, minors[-1]) if minors else (0, 0)


def ffi_problem(
    built: tuple[int, int] | None = None,
    runtime: tuple[int, int] | None = None,
    release: tuple[int, ...] | None = None,
) -> str | None:
    """Why this jaxlib cannot serve the handlers, with the cure; None if it can.

    The release counts too: FFI API 0.1 had several, of which not all give a handler
    its device's number.
    """
    release = release or jaxlib_release()
    if release < OLDEST_JAXLIB:
        return (
            f"jccl needs jaxlib {'.'.join(map(str, OLDEST_JAXLIB))} or newer, and this "
            f"is {'.'.join(map(str, release))}: upgrade jaxlib (pip install -U jax "
            "jaxlib). Calls outside jit on numpy arrays work as they are."
        )
    built = built or core().ffi_api_version
    runtime = runtime or runtime_ffi_api_version()
    if built[0] == runtime[0] and built[1] <= runtime[1]:
        return None
    return (
        f"jccl was built for XLA FFI API {built[0]}.{built[1]}, but this jaxlib serves "
        f"{runtime[0]}.{runtime[1]}: upgrade jaxlib, or build jccl again in this "
        "environment (pip install --no-build-isolation --force-reinstall -e .). "
        "Calls outside jit on numpy arrays work as they are."
    )


@functools.cache
def register_targets() -> None:
    """Tells XLA about the handlers, once a process.

    Those for CUDA cost nothing and say nothing where there is no GPU: XLA keeps them
    for a plugin that never comes.
    """
    import jax

    if problem := ffi_problem():
        raise ImportError(problem)
    for platform in ("cpu", "CUDA"):
        for name, capsule in core().handlers(platform).items():
            jax.ffi.register_ffi_target(name, capsule, platform=platform)
    _effect()


# Platforms of XLA for which this package has handlers.
FFI_PLATFORMS = ("cpu", "cuda")


def default_platform() -> str:
    """Where a program traced now will run, unless its operands say otherwise."""
    import jax

    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        name = jax.default_backend()
    else:
        name = device if isinstance(device, str) else device.platform
    if name != "gpu":
        return name
    version = jax.devices(name)[0].client.platform_version.lower()
    return "rocm" if "rocm" in version else "cuda"  # JAX calls both "gpu"


def jax_release() -> tuple[int, ...]:
    import jax

    return tuple(int(x) for x in re.findall(r"\d+", jax.__version__)[:3])


def current_traces() -> list[Any]:
    """The traces around the caller, innermost first; empty outside any transformation.

    Private in JAX: where a release moves it, an empty list switches off the checks
    that build on it (unchained ops, vmap over operands that are not batched) and
    nothing else.
    """
    try:
        from jax._src import core

        trace = core.trace_ctx.trace
        chain = []
        while trace is not None and not isinstance(trace, core.EvalTrace):
            chain.append(trace)
            trace = getattr(trace, "parent_trace", None)
        return chain
    except (ImportError, AttributeError):
        return []


def is_program_trace(trace: Any) -> bool:
    """Whether the trace records a program (jit, scan, cond, ...)."""
    return type(trace).__name__ in ("DynamicJaxprTrace", "JaxprTrace")


def is_batch_trace(trace: Any) -> bool:
    """Whether the trace is a vmap's."""
    return type(trace).__name__ == "BatchTrace"


def mapped_axes() -> dict[str, int]:
    """Names and sizes of the mesh axes the caller is mapped over; empty outside.

    Inside shard_map and pmap the whole mesh counts: its axes that are left to XLA's
    partitioner come with size 0, since nobody knows which devices they reach.
    """
    import jax

    try:
        mesh = jax.sharding.get_abstract_mesh()
        sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
        manual = getattr(mesh, "manual_axes", ())
    except AttributeError:
        return {}
    if not manual:
        return {}
    left = {name for name, size in sizes.items() if name not in manual and size > 1}
    return {name: 0 if name in left else size for name, size in sizes.items()}


def local_axis_size() -> int:
    """Devices of the mesh over which the caller is mapped (shard_map, pmap), those of
    axes left to XLA's partitioner too; 1 outside."""
    import math

    import jax

    if not mapped_axes():
        return 1
    return math.prod(jax.sharding.get_abstract_mesh().axis_sizes)


def fence(refusals: dict[str, str]) -> Any:
    """An identity primitive that refuses what a collective cannot be part of.

    `refusals` holds the texts under "vmap", "grad" and "spread": a program that XLA's
    partitioner spreads over several devices would run the call on each of them, on
    arrays gathered there.
    """
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("jccl_fence")

    def held(x: Any) -> Any:
        if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1:
            raise NotImplementedError(refusals["spread"])
        return x

    def lowered(ctx: Any, x: Any) -> list[Any]:
        # Inside shard_map the context is a mesh's, without a number of devices.
        context = getattr(ctx.module_context, "axis_context", None)
        if (getattr(context, "num_devices", 1) or 1) > 1:
            raise NotImplementedError(refusals["spread"])
        return [x]

    def typed(x: Any) -> Any:
        if 0 in mapped_axes().values():
            raise NotImplementedError(refusals["spread"])
        return x

    primitive.def_impl(held)
    primitive.def_abstract_eval(typed)
    mlir.register_lowering(primitive, lowered)

    def refuse(text: str) -> Any:
        def rule(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(text)

        return rule

    def differentiated(primals: Any, tangents: Any) -> Any:
        if type(tangents[0]).__name__ != "Zero":
            raise NotImplementedError(refusals["grad"])
        return primitive.bind(*primals), tangents[0]

    batching.primitive_batchers[primitive] = refuse(refusals["vmap"])
    ad.primitive_jvps[primitive] = differentiated
    return primitive


def effect_call(
    target: str, out: list[Any], input_output_aliases: dict[int, int] | None = None
) -> Any:
    """`jax.ffi.ffi_call` with a side effect, but on JAX's fast path.

    A JAX effect keeps transformations from dropping or repeating the call, but a
    program that has one leaves the C++ dispatch: some 10 us per argument and result,
    every time it runs. So the effect goes when dead code is removed, the last pass
    before lowering, if a result of the call is used: from there on its data hold it
    in the jaxpr, and `has_side_effect` in the HLO. A call whose results nobody uses
    keeps its effect and is made. Where JAX removes no dead code (in a `while`'s body,
    under `keep_unused`) the effect stays too: slower, never wrong.
    """
    import jax

    call = jax.ffi.ffi_call(
        target, out, has_side_effect=True, input_output_aliases=input_output_aliases
    )

    def wrapped(*operands: Any, **attributes: Any) -> Any:
        primitive = _call_primitive()
        if primitive is None or not current_traces():
            return call(*operands, **attributes)
        plain = functools.partial(call, **attributes)
        return _rebound(jax.make_jaxpr(plain)(*operands), primitive, operands)

    return wrapped


@functools.cache
def _call_primitive() -> Any:
    """A primitive around ffi_call's, its parameter `inner`; None if JAX has moved."""
    from jax.extend.core import Primitive
    from jax.interpreters import mlir, partial_eval

    rules = getattr(partial_eval, "dce_rules", None)
    if rules is None:
        return None
    primitive = Primitive("jccl_call")
    primitive.multiple_results = True
    effect = _effect()

    def abstract(*avals: Any, inner: Any, settled: bool, **params: Any) -> Any:
        out, effects = inner.abstract_eval(*avals, **params)
        return out, (set() if settled else {effect} if effect else effects)

    def lowered(*operands: Any, inner: Any, settled: bool, **params: Any) -> Any:
        return inner.bind(*operands, **params)

    # JAX 0.12 and later tell in between which references are read; eqn is the last.
    def keep(used: list[bool], *rest: Any) -> Any:
        eqn = rest[-1]
        if any(used):
            params = {**eqn.params, "settled": True}
            eqn = eqn.replace(params=params, effects=frozenset())
        return [True] * len(eqn.invars), eqn

    primitive.def_impl(lowered)
    primitive.def_effectful_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(lowered, multiple_results=True))
    rules[primitive] = keep
    return primitive


@functools.cache
def _effect() -> Any:
    """What a call does besides giving results. Allowed where FFI's own is, and inside
    custom derivatives; refused by remat, which prints it. None if JAX has moved."""
    try:
        from jax._src import effects
    except ImportError:
        return None

    @dataclasses.dataclass(frozen=True, repr=False)
    class Collective(effects.Effect):
        def __repr__(self) -> str:
            return (
                "a jccl collective, which a checkpoint would repeat: call it outside "
                "jax.checkpoint"
            )

    effects.lowerable_effects.add_type(Collective)
    effects.control_flow_allowed_effects.add_type(Collective)
    effects.custom_derivatives_allowed_effects.add_type(Collective)
    return Collective()


def _rebound(closed: Any, primitive: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluates the jaxpr of one ffi_call with `primitive` around that call."""
    values = dict(zip(closed.jaxpr.invars, operands, strict=True))
    for eqn in closed.jaxpr.eqns:
        arguments = [values[x] for x in eqn.invars]
        if eqn.effects:
            out = primitive.bind(
                *arguments, inner=eqn.primitive, settled=False, **eqn.params
            )
        else:
            out = eqn.primitive.bind(*arguments, **eqn.params)
        out = out if eqn.primitive.multiple_results else [out]
        values.update(zip(eqn.outvars, out, strict=True))
    return [values[x] for x in closed.jaxpr.outvars]
