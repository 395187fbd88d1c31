"""From the native module's CoreError(code, text) to the typed error of its code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jccl import _native, errors


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Calls into the native module raise `jccl.Error`s inside this block."""
    try:
        yield
    except _native.core().CoreError as fault:
        code, text = fault.args
        raise errors.error_of(code, text) from None
    except TypeError as fault:
        # pybind11 repeats the arguments, and one of them may be a secret.
        raise TypeError(str(fault).partition("Invoked with")[0].rstrip()) from None
