"""Where this process is in a Slurm job: the name of its site, and where the master is.

Reads the environment that srun gives to a task, and asks no daemon. Refuses an
environment of which a part is missing, with the name of the variable. Any thread.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from jccl.errors import InvalidError

# How srun says that this process is one of its tasks. A batch script has the job's
# variables alone: it starts the peers, and is none.
OF_A_TASK = ("SLURM_JOB_ID", "SLURM_STEP_ID")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")


def in_task(env: Mapping[str, str]) -> bool:
    """Whether srun started this process, and `jccl run` did not do so after it."""
    return all(env.get(name) for name in OF_A_TASK) and not env.get("JCCL_RUN_PID")


def site(env: Mapping[str, str]) -> str:
    """`CLUSTER-JOB-RANK`: the same when the job is requeued, also on other nodes, so
    that a site finds its checkpoints again."""
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_PROCID")
    remedy = "give each task a site= of its own"
    return "-".join(_needed(env, name, remedy) for name in names)


def master(env: Mapping[str, str], port: int) -> str:
    """The first node of the job, where its batch script runs; of a heterogeneous job
    that of the first component."""
    name = "SLURM_JOB_NODELIST"
    first_component = f"{name}_HET_GROUP_0"
    if env.get(first_component):
        name = first_component
    text = _needed(env, name, "pass jccl.connect('host:port') or set JCCL_MASTER")
    try:
        return f"{next(nodes(text))}:{port}"
    except ValueError as fault:
        raise InvalidError(
            f"{name}={text!r} names no node ({fault}): pass jccl.connect('host:port') "
            "or set JCCL_MASTER"
        ) from None


def _needed(env: Mapping[str, str], name: str, remedy: str) -> str:
    value = env.get(name, "")
    if value:
        return value
    raise InvalidError(
        f"this is a task of Slurm job {env['SLURM_JOB_ID']}, and {name} is missing in "
        f"its environment, as after sudo or in a container: pass it on, or {remedy}"
    )


def nodes(text: str) -> Iterator[str]:
    """The hosts of a list like `n[01-03,7],gpu1`, in order, as `scontrol show
    hostnames` has them. ValueError if it is none. Lazy: only the hosts that are taken
    cost memory, whatever the ranges say."""
    if not text.strip():
        raise ValueError("it is empty")
    for item in _items(text.strip()):
        yield from _hosts(item)


def _items(text: str) -> Iterator[str]:
    """The parts between commas that are in no brackets."""
    begin = depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text!r}")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if depth:
        raise ValueError(f"brackets do not match in {text!r}")
    yield text[begin:]


def _hosts(item: str) -> Iterator[str]:
    """Of one item: each pair of brackets stands for each of its numbers in turn."""
    parts, end = [], 0
    for found in _PART.finditer(item):
        if found.start() != end:
            break
        end = found.end()
        parts.append(found)
    if end != len(item) or not parts:
        raise ValueError(f"{item!r} is not a host name")
    return _product([(m[1], m[2]) for m in parts])


def _product(parts: list[tuple[str | None, str | None]]) -> Iterator[str]:
    if not parts:
        yield ""
        return
    (ranges, plain), *rest = parts
    heads = iter([plain or ""]) if ranges is None else _numbers(ranges)
    for head in heads:
        for tail in _product(rest):
            yield head + tail


def _numbers(ranges: str) -> Iterator[str]:
    """`01-03,7` as 01, 02, 03, 7: as many digits as the first number has."""
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        if found is None:
            raise ValueError(f"[{ranges}] holds no numbers")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first):
            raise ValueError(f"[{ranges}] goes backwards")
        for number in itertools.count(int(first)):
            if number > int(last):
                break
            yield str(number).zfill(len(first))
