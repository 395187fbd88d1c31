"""Defaults that come from the environment, and the token. Needs neither jax nor numpy.

An argument always wins over the environment. The names are JCCL_MASTER, JCCL_TOKEN,
JCCL_TOKEN_FILE, JCCL_KEY_FILE, JCCL_SITE, JCCL_SHARD, JCCL_SHARDS, JCCL_BIND,
JCCL_ADVERTISE, JCCL_START_PEERS, JCCL_DEADLINE, JCCL_INSECURE and JCCL_ROUTE.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jccl.errors import AuthError, IoError

DEFAULT_PORT = 29400
# What names one peer: several peers must not inherit it from whoever starts them, since
# two lives of one shard evict each other.
OF_ONE_PEER = (
    "JCCL_SITE",
    "JCCL_SHARD",
    "JCCL_SHARDS",
    "JCCL_ADVERTISE",
    "JCCL_KEY_FILE",
)


def env_default(value: Any, name: str, convert: Callable[[str], Any] = str) -> Any:
    """`value`, else the environment's, which is only ever a default."""
    if value is not None:
        return value
    text = os.environ.get(name)
    if text is None or text == "":
        return None
    try:
        return convert(text)
    except ValueError as fault:
        raise ValueError(f"environment variable {name}={text!r}: {fault}") from None


def read_token(token: str | None, token_file: str | os.PathLike[str] | None) -> str:
    """The token of the arguments, else of JCCL_TOKEN or JCCL_TOKEN_FILE; "" if none.

    A file that is named must hold one: an empty file never means "without encryption".
    Like a key file it is its owner's alone.
    """
    if token is not None and token_file is not None:
        raise ValueError("give token or token_file, not both")
    if token is None and token_file is None:
        token = os.environ.get("JCCL_TOKEN") or None
    if token is not None:
        if token and not token.strip():
            raise AuthError("the token is blank: pass the run's, or none at all")
        return token.strip()
    if token_file is None:
        token_file = os.environ.get("JCCL_TOKEN_FILE") or None
    return _token_in(token_file) if token_file is not None else ""


def _token_in(path: str | os.PathLike[str]) -> str:
    try:
        with Path(path).open(encoding="ascii") as file:
            facts = os.fstat(file.fileno())
            token = file.read().strip()
    except UnicodeDecodeError:
        raise AuthError(f"token file {os.fspath(path)} holds no token") from None
    except OSError as fault:
        raise IoError(
            f"token file {os.fspath(path)} can't be read: {fault.strerror}"
        ) from None
    if not token:
        raise AuthError(f"token file {os.fspath(path)} is empty")
    if stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) & 0o077:
        raise AuthError(
            f"token file {os.fspath(path)} can be read by other users of this machine; "
            "take their rights away (chmod 600), or make a new token if they may have "
            "read it"
        )
    return token


def shared_environment() -> dict[str, str]:
    """The environment without what names one peer, for a command that starts many."""
    return {k: v for k, v in os.environ.items() if k not in OF_ONE_PEER}


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_memory() -> bool:
    """Makes this process keep the memory it frees, for the next array of that size.

    XLA takes memory for the results of every call, and malloc gives large blocks back
    to the kernel as soon as they are free: the kernel then clears each page again,
    a pass over the result that costs more than the transport's own. Call it before the
    first large array. The price: what was free once stays with the process (its peak,
    and holes between blocks), so nothing else on the machine can have it.

    Returns:
        Whether it took effect; only glibc's malloc can do it.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    mallopt = libc.mallopt
    # Blocks of any size come from the heap, whose end is never given back.
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))


def truth(text: str) -> bool:
    """A yes or no of the environment."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")
