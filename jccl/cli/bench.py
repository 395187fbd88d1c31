"""`jccl bench`: collectives measured by the columns of nccl-tests, and checked.

Every element of the last iteration is compared with what the contributors' known inputs
must give; `#wrong` counts those outside the codec's documented error. Without a master
the command starts one, and the other peers as processes of this machine.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np

from jccl.cli import explain
from jccl.cli.common import Size, run_options
from jccl.codecs import CODECS
from jccl.settings import read_token, shared_environment

PATTERN = 251  # below the int8 block, so that every block has the same largest element
CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure."""

    begin: int
    end: int
    factor: float
    codec: str
    op: str
    warmup: int
    iterations: int
    plan: str = "auto"
    explain: bool = False

    def sizes(self) -> Iterator[int]:
        size = float(self.begin)
        while size <= self.end:
            yield max(4, int(size) // 4 * 4)
            size *= self.factor


@click.command(name="bench")
@run_options
@click.option("-b", "--begin", type=Size(), default="1K", show_default=True)
@click.option("-e", "--end", type=Size(), default="64M", show_default=True)
@click.option("-f", "--factor", type=float, default=2.0, show_default=True)
@click.option(
    "--codec", type=click.Choice(list(CODECS)), default="none", show_default=True
)
@click.option(
    "--op", type=click.Choice(["sum", "mean"]), default="sum", show_default=True
)
@click.option(
    "--plan",
    type=click.Choice(["auto", "fastest", *explain.PLANS]),
    default="auto",
    show_default=True,
    help="Which peer sends what to which; auto: the master chooses, fastest: also "
    "among plans that add in another order.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Also print the available plans, with predicted and measured time. Give it to "
    "all peers or none.",
)
@click.option("--peers", default=2, show_default=True, help="Number of peers in all.")
@click.option(
    "-w",
    "--warmup",
    default=1,
    show_default=True,
    help="Rounds before the measurement.",
)
@click.option(
    "-n", "--iterations", default=5, show_default=True, help="Rounds measured."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per size.")
@click.option("--quiet", is_flag=True, help="Take part without printing.")
def command(
    master: str | None,
    token_file: str | None,
    insecure: bool,
    peers: int,
    as_json: bool,
    quiet: bool,
    **plan: Any,
) -> None:
    """Measure all_reduce of f32 arrays from --begin to --end bytes.

    With --master (or JCCL_MASTER) this process is one of --peers peers of that run:
    start it on every machine. Without it, everything runs on this machine.
    """
    if plan["factor"] <= 1:
        raise click.UsageError("--factor must be more than 1")
    if peers < 1 or plan["iterations"] < 1:
        raise click.UsageError("--peers and --iterations must be at least 1")
    if plan["warmup"] < 0:
        raise click.UsageError("--warmup must be at least 0")
    if plan["begin"] > plan["end"]:
        raise click.UsageError("--begin must be at most --end")
    show = _silent if quiet else _show_json if as_json else _show_row
    if show is _show_row:
        click.echo(HEADER)
    if master:
        options = {"token": read_token(None, token_file), "insecure": insecure}
        wrong = _measure(master, peers, Plan(**plan), show, options)
    else:
        token = read_token(None, token_file)
        wrong = _measure_here(peers, Plan(**plan), show, token)
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


def _measure_here(peers: int, plan: Plan, show: Callable[..., None], token: str) -> int:
    from jccl import _native
    from jccl._faults import typed_errors

    with typed_errors():
        master = _native.core().Master.start(start_peers=peers, token=token)
    arguments = [
        f"--{name}={value}"
        for name, value in dataclasses.asdict(plan).items()
        if name != "explain"
    ] + ["--explain"] * plan.explain
    argv = [sys.executable, "-m", "jccl.cli", "bench", "--quiet", f"--peers={peers}"]
    env = {
        **shared_environment(),
        "JCCL_MASTER": master.address,
        "JCCL_TOKEN": token,
    }
    others = [
        subprocess.Popen([*argv, *arguments], env=env, stdout=subprocess.DEVNULL)
        for _ in range(peers - 1)
    ]
    try:
        wrong = _measure(
            master.address, peers, plan, show, {"token": token, "insecure": None}
        )
        codes = [other.wait(60) for other in others]
    finally:
        for other in others:
            if other.poll() is None:
                other.kill()
        master.stop()
    if any(codes):
        raise click.ClickException(f"a peer ended with exit code {max(codes)}")
    return wrong


def _measure(
    master: str,
    peers: int,
    plan: Plan,
    show: Callable[..., None],
    options: dict[str, Any],
) -> int:
    from jccl import _native
    from jccl._peer_options import Security, Waits
    from jccl.connecting import connect

    def ask() -> dict[str, Any]:
        text = _native.core().query_status(master, timeout=5.0, **options)
        return dict(json.loads(text))

    wrong = 0
    with connect(
        master,
        token=options["token"],
        security=Security(insecure=options["insecure"]),
        waits=Waits(start_peers=peers),
    ) as comm:
        for size in plan.sizes():
            row = measure_size(comm, size, plan)
            wrong += row["wrong"]
            if plan.explain:
                row["explain"] = _explain(comm, size, plan, row, ask)
            show(row)
        comm.barrier()
    return wrong


def _explain(
    comm: Any,
    size: int,
    plan: Plan,
    row: dict[str, Any],
    ask: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """The decision behind `row`; measures the other plans for it."""
    measured = {plan.plan: row["time_us"] / 1e6}
    for name in explain.PLANS:
        if name not in measured:
            other = dataclasses.replace(plan, plan=name)
            measured[name] = measure_size(comm, size, other)["time_us"] / 1e6
    return explain.decision(ask(), size, plan.codec, measured)


def measure_size(comm: Any, size: int, plan: Plan) -> dict[str, Any]:
    from jccl._round import Place, Round

    count = size // 4
    out = np.empty(count, np.float32)
    options: dict[str, Any] = {"op": plan.op, "codec": plan.codec, "tag": "bench"}
    way: Any = plan.plan
    options |= {"round": Round(plan=way), "place": Place(out=out)}
    mine = contribution(comm.attributes().id, count)
    seconds = []
    for _ in range(plan.warmup + plan.iterations):
        comm.barrier()
        # An observer learns its number with its admission, at its first round.
        if (me := comm.attributes().id) != 0:
            mine = contribution(me, count)
        result = comm.all_reduce(mine, **options)
        seconds.append(result.elapsed)
    measured = sorted(seconds[plan.warmup :])
    time_s = measured[len(measured) // 2]
    algbw = size / time_s / 1e9
    return {
        "size": size,
        "count": count,
        "type": "float",
        "redop": plan.op,
        "codec": plan.codec,
        "peers": result.world,
        "time_us": time_s * 1e6,
        "time_us_min": measured[0] * 1e6,
        "algbw_GBps": algbw,
        "busbw_GBps": algbw * 2 * (result.world - 1) / result.world,
        "wrong": count_wrong(out, result.contributors, plan),
        "sent_bytes": result.sent_bytes,
        "received_bytes": result.received_bytes,
    }


def contribution(peer: int, count: int) -> np.ndarray:
    """What peer `peer` puts in: a pattern scaled by its number, exact in f32."""
    pattern = (np.arange(PATTERN, dtype=np.float32) - 125) / 64
    return np.resize(pattern * (1 + peer), count)


def count_wrong(out: np.ndarray, contributors: tuple[int, ...], plan: Plan) -> int:
    """Elements that differ from the formula by more than the codec's error."""
    factors = [1.0 + peer for peer in contributors]
    scale = sum(factors) / (len(factors) if plan.op == "mean" else 1)
    sent = max(factors) * (1 if plan.op == "mean" else len(factors))
    largest = 125 / 64
    # One rounding of each contribution and one of the result.
    error = {
        "int8": (sent + scale) * largest / 254,
        "bf16": (sent + scale) * largest / 256,
        "fp16": (sent + scale) * largest / 2048,
        "fp8": (sent * 1.07 + scale) * largest / 16,
        "int4": (sent * 1.07 + scale) * largest / 13,
        "e3m0": (sent * 1.33 + scale) * largest / 3,
        "int2": (sent * 1.5 + scale) * largest / 1.9,
        "stat2": (sent * 1.1 + scale) * largest,
        # What is not among the largest stays out.
        "topk": scale * largest,
        "topk2": (sent * 1.1 + scale) * largest,
    }.get(plan.codec, scale * largest * 1e-6)
    wrong = 0
    pattern = (np.arange(PATTERN, dtype=np.float32) - 125) / 64 * np.float32(scale)
    step = CHUNK // PATTERN * PATTERN
    for begin in range(0, out.size, step):
        part = out[begin : begin + step]
        good = np.abs(part - np.resize(pattern, part.size)) <= error * 1.001
        wrong += int(part.size - np.count_nonzero(good))
    return wrong


HEADER = (
    f"#{'size':>12}{'count':>12}{'type':>7}{'redop':>7}{'time':>10}{'algbw':>9}"
    f"{'busbw':>9}{'#wrong':>8}{'sent':>13}{'received':>13}\n"
    f"#{'(B)':>12}{'(elements)':>12}{'':>7}{'':>7}{'(us)':>10}{'(GB/s)':>9}"
    f"{'(GB/s)':>9}{'':>8}{'(B)':>13}{'(B)':>13}"
)


def _show_row(row: dict[str, Any]) -> None:
    click.echo(
        f" {row['size']:>12}{row['count']:>12}{row['type']:>7}{row['redop']:>7}"
        f"{row['time_us']:>10.1f}{row['algbw_GBps']:>9.3f}{row['busbw_GBps']:>9.3f}"
        f"{row['wrong']:>8}{row['sent_bytes']:>13}{row['received_bytes']:>13}"
    )
    if "explain" in row:
        click.echo(explain.text(row["explain"]))
        click.echo(explain.matrix(row["explain"]))


def _show_json(row: dict[str, Any]) -> None:
    click.echo(json.dumps(row))


def _silent(row: dict[str, Any]) -> None:
    return None
