"""What callers say besides arrays, checked before anything is traced or sent.

A mistake is refused in words that name the argument; a traced value passes, and is
checked by the native module in every step (a weight that is none gives INVALID).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import numpy as np

from jccl import _native
from jccl.errors import InvalidError

_core = _native.core()

SECONDS_MAX = 2**31 / 1000  # programs count milliseconds in 32 bits
WEIGHT_MIN = _core.limits["weight_min"]
WEIGHT_MAX = _core.limits["weight_max"]
WEIGHT_ANNOUNCED = _core.limits["weight_announced"]
RATE_MIN = _core.limits["rate_min"]
DAY_BYTES_MIN = _core.limits["day_bytes_min"]
RECORD_MIB_MAX = _core.limits["record_bytes_max"] >> 20


def check_text(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"jccl: {name} must be a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidError(
            f"{name} {value!r} holds half of a surrogate pair, which is no UTF-8"
        ) from None


def check_tag(tag: Any) -> None:
    check_text("tag", tag)
    limit = _core.limits["tag_bytes_max"]
    if tag is None or not 1 <= len(tag.encode()) <= limit:
        raise InvalidError(f"tag {tag!r} must have 1 to {limit} bytes of UTF-8")


# How an operator puts the run back to a state; see `jccl.sync_state`.
Restore = bool | Literal["any", "again"]
_WISHES: dict[Any, int] = {False: 0, True: 1, "any": 2, "again": 3}  # JCCL_RESTORE_…


def number_of_wish(restore: Restore) -> int:
    if isinstance(restore, bool | str) and restore in _WISHES:
        return _WISHES[restore]
    raise InvalidError(f'restore={restore!r} must be True, False, "any" or "again"')


def check_seconds(deadline: Any) -> None:
    """0 would reach the native module as "the default", and is hardly meant so."""
    seconds = _number("deadline", deadline, "of seconds")
    if seconds is not None and not 0 < seconds < SECONDS_MAX:
        raise InvalidError(
            f"deadline={deadline} must be seconds, above 0 and below {SECONDS_MAX:.0f}"
        )


def check_rate(rate: float) -> None:
    if not RATE_MIN <= rate < math.inf:
        raise InvalidError(
            f"max_rate={rate} must be bytes per second, at least {RATE_MIN:.0f}; leave "
            "it out for no bound"
        )


def check_day_bytes(size: float) -> None:
    if not DAY_BYTES_MIN <= size < math.inf:
        raise InvalidError(
            f"day_bytes={size} must be bytes per day, at least {DAY_BYTES_MIN:.0f}; "
            "leave it out for no bound"
        )


def check_weight(weight: Any) -> None:
    number = _number("weight", weight)
    if number is None or number == 0 or WEIGHT_MIN <= number <= WEIGHT_MAX:
        return
    raise InvalidError(
        f"weight={weight} must be 0 (receive only) or between {WEIGHT_MIN:g} and "
        f"{WEIGHT_MAX:g}"
    )


def _number(name: str, value: Any, of: str = "") -> float | None:
    """None if there is none yet: not given, or traced."""
    if value is None or isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, str | bytes):
        raise _no_number(name, value, of)
    if np.ndim(value) != 0:
        raise InvalidError(f"{name} must be a scalar, not of shape {np.shape(value)}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _no_number(name, value, of) from None


def _no_number(name: str, value: Any, of: str) -> TypeError:
    kind = type(value).__name__
    return TypeError(f"jccl: {name} must be a number {of}".rstrip() + f", not {kind}")
