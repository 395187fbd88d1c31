"""Signals of a command, which may run in a program, or in a test, that goes on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def handled_by(
    handler: Callable[[int, object], None], *numbers: signal.Signals
) -> Iterator[None]:
    """Gives them back at the end."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, how in before.items():
            signal.signal(number, how)
