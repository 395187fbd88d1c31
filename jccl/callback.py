"""Routes from a compiled program to the transport: XLA's FFI, or callbacks into Python.

Where XLA takes no custom calls of ours (TPU), a Python callback runs the same native
handlers over host arrays, so every route has the same semantics and the same bits.
`ops` asks for a call by the name of its handler; which route it takes is the
communicator's choice. An exception inside a callback never reaches XLA, which would
destroy the program's donated arrays: it becomes a status. Runs on XLA's threads, which
for small programs of the CPU backend is the caller's.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jccl import _native

FFI, BUFFER, IO = ROUTES = ("ffi", "buffer_callback", "io_callback")
_log = logging.getLogger("jccl")


def check_route(route: str | None) -> str:
    """A route by name, or "" for the backend's own; ValueError for another word."""
    if route and route not in ROUTES:
        raise ValueError(f"unknown route {route!r}; known: {', '.join(ROUTES)}")
    return route or ""


def route_of(comm: Any = None) -> str:
    """The route of a program traced now: the communicator's, else the backend's own."""
    return getattr(comm, "route", "") or route_for(_native.default_platform())


def route_for(platform: str) -> str:
    """FFI where XLA has handlers of ours, `io_callback` everywhere else."""
    return FFI if platform in _native.FFI_PLATFORMS else IO


def mesh_problem(route: str, platform: str, devices: int) -> str | None:
    """Why a program mapped over local devices can't take the route, with the cure."""
    if route != IO or devices < 2 or platform != "cpu":
        return None
    if _native.jax_release() >= (0, 11):
        return None
    return (
        f"jccl: calls over {devices} CPU devices by io_callback: on the CPU backend of "
        "JAX before 0.11 a program with io_callback and local collectives hangs. "
        "Connect with route='buffer_callback', or leave route= out for XLA's FFI."
    )


def effect_call(
    route: str, target: str, out: Sequence[Any], aliases: dict[int, int] | None = None
) -> Callable[..., Any]:
    """A call of the handler `target`, made exactly when the program comes to it.

    Args:
        route: as `route_of` gives it.
        out: ShapeDtypeStructs of the results.
        aliases: operands, by index, whose memory results may take. `io_callback`
            copies all operands and results.

    Returns:
        A function of the operands, and of the handler's attributes by keyword.
    """
    if route == FFI:
        _native.register_targets()
        return _native.effect_call(target, list(out), input_output_aliases=aliases)
    return functools.partial(_bind, route, target, tuple(out), aliases, True)


def pure_call(
    route: str, target: str, out: Sequence[Any], aliases: dict[int, int] | None = None
) -> Callable[..., Any]:
    """Likewise, of a handler without effects, which XLA may drop or call again; under
    vmap one call per lane."""
    if route == FFI:
        import jax

        _native.register_targets()
        return jax.ffi.ffi_call(
            target,
            list(out),
            input_output_aliases=aliases,
            vmap_method="sequential",
        )
    return functools.partial(_bind, route, target, tuple(out), aliases, False)


def _bind(
    route: str,
    target: str,
    out: tuple[Any, ...],
    aliases: dict[int, int] | None,
    effect: bool,
    *operands: Any,
    **attributes: Any,
) -> Any:
    import jax
    from jax.experimental import io_callback
    from jax.experimental.buffer_callback import buffer_callback

    specs = tuple((tuple(x.shape), np.dtype(x.dtype)) for x in out)
    plain = tuple(sorted((k, _hashable(v)) for k, v in attributes.items()))
    host = HostCall(target, specs, plain, effect)
    if route == BUFFER:
        call = buffer_callback(
            host.in_buffers,
            list(out),
            has_side_effect=effect,
            vmap_method=None if effect else "sequential",
            input_output_aliases=aliases,
        )
        return call(*operands)
    if effect:
        return io_callback(host.in_arrays, list(out), *operands)
    return jax.pure_callback(
        host.in_arrays, list(out), *operands, vmap_method="sequential"
    )


def _hashable(value: Any) -> Any:
    """Attributes are part of what a compiled program is known by."""
    if isinstance(value, np.ndarray) and value.ndim:
        return tuple(int(word) for word in value)
    return value


@dataclasses.dataclass(frozen=True)
class HostCall:
    """One call site: equal ones share a compiled program."""

    target: str
    specs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    attributes: tuple[tuple[str, Any], ...]
    effect: bool

    def in_arrays(self, *operands: Any) -> list[np.ndarray]:
        """For `io_callback`: copies come in, new arrays go out."""
        results = [np.empty(shape, dtype) for shape, dtype in self.specs]
        self._run(operands, results)
        return results

    def in_buffers(self, _: Any, results: Sequence[Any], *operands: Any) -> None:
        """For `buffer_callback`: XLA's own memory, read and written in place."""
        self._run(operands, [np.asarray(x) for x in results])

    def _run(self, operands: Sequence[Any], results: Sequence[np.ndarray]) -> None:
        if not self.effect:
            self._handle(operands, results)
            return
        done = False
        try:
            with _inside:
                self._handle(operands, results)
                done = True
        except KeyboardInterrupt:
            interrupt_later()  # the program ends in order, then Ctrl-C is raised
            if not done:
                self._refuse(operands, results, "Aborted")
        except BaseException as fault:
            if again := getattr(fault, "again", None):  # see jccl._watch
                again()
                if not done:
                    self._refuse(operands, results, "Aborted")
                return
            _log.exception("jccl: %s failed inside its callback", self.target)
            self._refuse(operands, results, "Internal")

    def _handle(self, operands: Sequence[Any], results: Sequence[np.ndarray]) -> None:
        arrays = [np.asarray(x) for x in operands]
        attributes = {
            name: np.asarray(value, np.int64) if isinstance(value, tuple) else value
            for name, value in self.attributes
        }
        device, execution = 0, next(_EXECUTIONS)
        if at := _DEVICE_AT.get(self.target):
            # All devices of a program share one number here; joins go by tag and order.
            place = at(len(results), int(attributes.get("count", 0)))
            device, execution = int(arrays[place]), 0
        _native.core().run_handler(
            self.target,
            arrays,
            list(results),
            attributes,
            device=device,
            execution=execution,
        )

    def _refuse(
        self, operands: Sequence[Any], results: Sequence[np.ndarray], code: str
    ) -> None:
        """The results of a call that could not be made: operands as they came."""
        number = _native.core().codes[code]
        first_in, first_out = _LEAVES_AT[self.target]
        status = [at for at, spec in enumerate(self.specs) if spec == _STATUS]
        leaves = status[-1] if status else len(results) - 1
        for result in results[leaves:]:
            result[...] = 0
        for at in status[-1:]:
            results[at][0] = number
        if self.target in ("jccl_start", "jccl_mesh_start"):
            results[0][...] = (number, 1 << 31)  # as the handler names a failed start
            first_in += dict(self.attributes)["count"]
        for result, operand in zip(
            results[first_out:leaves], operands[first_in:], strict=False
        ):
            array = np.asarray(operand)
            result[...] = array if array.shape == result.shape else 0


_STATUS = ((4,), np.dtype(np.int32))
_EXECUTIONS = itertools.count(1)
# Where leaves begin among operands and among results; and where the operand with the
# device's number is, by the number of results and the attribute `count`.
_LEAVES_AT = {
    "jccl_round": (0, 0),
    "jccl_start": (0, 1),
    "jccl_done": (1, 0),
    "jccl_publish": (0, 0),
    "jccl_mesh_round": (0, 0),
    "jccl_mesh_start": (0, 1),
    "jccl_mesh_done": (0, 0),
    "jccl_mesh_publish": (0, 0),
}
_DEVICE_AT: dict[str, Callable[[int, int], int]] = {
    "jccl_mesh_round": lambda results, count: results - 2,
    "jccl_mesh_start": lambda results, count: results - 2 + count,
    "jccl_mesh_done": lambda results, count: count + 1,
    "jccl_mesh_publish": lambda results, count: results - 1,
}


class _Inside:
    """Counts the callbacks that run now, in all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.count -= 1


_inside = _Inside()


def is_inside() -> bool:
    """Whether a program is in Python of ours now, where nothing may be raised."""
    return _inside.count > 0


_LEAVE_S = 0.02  # for JAX's own Python around a callback


def interrupt_later(number: signal.Signals = signal.SIGINT) -> None:
    """Sends the main thread a signal anew, once no callback would swallow what its
    handler raises."""
    import _thread

    def wait() -> None:
        time.sleep(_LEAVE_S)
        while _inside.count:
            time.sleep(_LEAVE_S)
        _thread.interrupt_main(number)

    threading.Thread(target=wait, daemon=True).start()
