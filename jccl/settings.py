"""Defaults that come from the environment, and the token. Needs neither jax nor numpy.

An argument always wins over the environment. The names are JCCL_MASTER, JCCL_TOKEN,
JCCL_TOKEN_FILE, JCCL_KEY_FILE, JCCL_SITE, JCCL_SHARD, JCCL_SHARDS, JCCL_GROUP,
JCCL_BIND, JCCL_ADVERTISE, JCCL_START_PEERS, JCCL_DEADLINE, JCCL_CONNECT_TIMEOUT,
JCCL_MAX_RATE, JCCL_INSECURE, JCCL_ROUTE, JCCL_ON_FAULT, JCCL_ON_TERM, JCCL_RECORD and
JCCL_RECORD_ON_SIGNAL. What neither says a task of Slurm takes from Slurm's environment:
the site's name, and where the master is.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jccl import _slurm
from jccl.errors import AuthError, InvalidError, IoError

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
# An operator's: with it a training program could ban and kick.
OF_AN_OPERATOR = ("JCCL_ADMIN_TOKEN",)
NOT_A_NAME = (
    "not the name of a file, a peer or a key; put it into a file that only you can "
    "read, and give that file's name (--token-file, JCCL_TOKEN_FILE)"
)
_SECRET = re.compile(r"jccl2(run)?\.[^\s/]*[0-9a-f]{16}", re.IGNORECASE)


def secret_in(text: str) -> str:
    """What kind of secret the text holds, in words; "" if none.

    An error must not repeat such a text, and nothing may send it as a name.
    """
    found = _SECRET.search(text)
    if found is None:
        return ""
    return "a run's secret" if found[1] else "a token"


def refuse_secret(where: str, value: Any) -> None:
    """For a value that is the name of something: secrets get there by mistake."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    kind = secret_in(text) if isinstance(text, str) else ""
    if kind:
        raise InvalidError(f"{where} is {kind}, {NOT_A_NAME}")


def env_default(value: Any, name: str, convert: Callable[[str], Any] = str) -> Any:
    """`value`, else the environment's, which is only ever a default."""
    if value is not None:
        return value
    text = os.environ.get(name)
    if text is None or text == "":
        return None
    refuse_secret(f"environment variable {name}", text)
    try:
        return convert(text)
    except ValueError as fault:
        raise ValueError(f"environment variable {name}={text!r}: {fault}") from None


def addresses_of(text: Any) -> list[str]:
    """Of `advertise`: a list, or one in a text with commas."""
    if isinstance(text, str):
        return [part.strip() for part in text.split(",") if part.strip()]
    return list(text or ())


def connect_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the native `connect` takes: `given`, else the environment's defaults."""
    for name in ("master", "site", "key_file", "bind", "record"):
        refuse_secret(name, given[name])
    where = env_default(given["master"], "JCCL_MASTER") or _master_of_a_job()
    shards = env_default(given["shards"], "JCCL_SHARDS", int) or 1
    site = env_default(given["site"], "JCCL_SITE")
    if site is None and shards == 1:
        site = name_by_launcher()
    return {
        **given,
        "master": where,
        "key_file": os.fspath(env_default(given["key_file"], "JCCL_KEY_FILE") or ""),
        "insecure": bool(env_default(given["insecure"], "JCCL_INSECURE", truth)),
        "io_threads": env_default(given["io_threads"], "JCCL_IO_THREADS", truth),
        "max_rate": float(env_default(given["max_rate"], "JCCL_MAX_RATE", float) or 0),
        "day_bytes": float(
            env_default(given["day_bytes"], "JCCL_DAY_BYTES", float) or 0
        ),
        "record": os.fspath(env_default(given["record"], "JCCL_RECORD") or ""),
        "record_on_signal": bool(
            env_default(given["record_on_signal"], "JCCL_RECORD_ON_SIGNAL", truth)
        ),
        "site": site or "",
        "shard": env_default(given["shard"], "JCCL_SHARD", int) or 0,
        "shards": shards,
        "group": env_default(given["group"], "JCCL_GROUP") or "",
        "bind": env_default(given["bind"], "JCCL_BIND") or "",
        "advertise": addresses_of(env_default(given["advertise"], "JCCL_ADVERTISE")),
        "start_peers": env_default(given["start_peers"], "JCCL_START_PEERS", int) or 0,
        "deadline": given["deadline"] or 300.0,
    }


def _master_of_a_job() -> str:
    if _slurm.in_task(os.environ):
        return _slurm.master(os.environ, DEFAULT_PORT)
    in_job = os.environ.get("SLURM_JOB_ID") and not os.environ.get("SLURM_STEP_ID")
    raise InvalidError(
        "no master named: pass jccl.connect('host:port'), set JCCL_MASTER, or "
        "start the script with 'jccl run -n 3 -- python script.py'"
        + (" or, in this Slurm job, with srun" if in_job else "")
    )


_NAMED = itertools.count(1)


def name_by_launcher() -> str | None:
    """Of the peer that this process is, for those who started it: `jccl run`, Slurm."""
    return _name_in_a_run() or _name_in_a_job()


def _name_in_a_run() -> str | None:
    """`peer-2` of the third peer that `jccl run` started, `peer-2.1` in its next life.

    A process that such a peer starts has its environment, and must not take its name.
    """
    index, life = os.environ.get("JCCL_PEER_INDEX"), os.environ.get("JCCL_PEER_LIFE")
    if not index or os.environ.get("JCCL_RUN_PID") != str(os.getppid()):
        return None
    return _once(f"peer-{index}" if life in (None, "", "0") else f"peer-{index}.{life}")


def _name_in_a_job() -> str | None:
    """Of the task of Slurm that this process is. A task is one peer, of one site."""
    return _once(_slurm.site(os.environ)) if _slurm.in_task(os.environ) else None


def _once(name: str) -> str:
    number = next(_NAMED)  # a second communicator must not evict the first
    return name if number == 1 else f"{name}-{number}"


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
    if token_file is not None:
        refuse_secret("token_file", token_file)
    else:
        token_file = env_default(None, "JCCL_TOKEN_FILE")
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
    """The environment for a command that starts many peers.

    It lacks what names one peer, and the right to give orders.
    """
    left_out = OF_ONE_PEER + OF_AN_OPERATOR
    return {k: v for k, v in os.environ.items() if k not in left_out}


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_memory() -> bool:
    """Makes this process keep the memory it frees, for the next array of that size.

    XLA allocates memory for the results of every call, and malloc returns large blocks
    to the kernel as soon as they are free. Then the kernel clears each page again,
    which costs more than the transport's own pass over the result. Call this before the
    first large array. The price: freed memory stays with the process (its peak, and
    holes between blocks), so nothing else on the machine can use it.

    Returns:
        Whether it took effect; only glibc's malloc supports it.
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
