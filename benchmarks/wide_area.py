"""All-reduce between hosts of an emulated wide area (benchmarks/wan), against plain TCP
on the same links and Gloo, in alternation.

The envelope. Two peers of S bytes send S each way at once; with three or more the
direct plan sends 2·(w-1)/w·S. A line of R bit/s carries 0.965·R of TCP payload. Compute
is of no account below 5 Gbit/s (25 ms per 256 MiB and pass, against 2.2 s on 1 Gbit/s):
what counts is that one call fills the line at once and to its end, and how often it
waits for a round trip. On paper: bytes / (0.965·R) + one round trip, `limit` in the
table, so 2.23 + 0.08 s for 256 MiB on 1 Gbit/s × 80 ms; `%lim` is limit/p50. Agreement
takes one more round trip before the data (READY, START) and one after (DONE, COMMIT)
for a peer that is far from the master: measured, and no part of the limit. Floors and
targets are those that the project has set itself.

`cold` is the first call on links that have carried nothing, `p50` and `p99` are later
calls. A call counts from when the last peer has entered it until the last has returned.
`wire` is what the busiest host sent in IP bytes, acknowledgements, repetitions and
heartbeats included, over the documented bytes; `retr` the share of TCP segments that
were sent again. Beside: `plain`, the same bytes in equal parts over 8 connections
without any protocol; `gloo`, torch's, fp32, at most 32 MiB unless --full, and given up
when a turn takes longer than 45 s. Floors and % of the limit are for the cell's size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, median, options, percentile
from benchmarks.wan import Net, missing
from benchmarks.wide_cells import Cell, M, cells

VARIANTS = ("jccl", "plain", "gloo")
MASTER_PORT = 29400
PLAIN_STREAMS = 8
GLOO_BYTES_QUICK = 32 * M
GLOO_S = 45.0  # a turn that takes longer is given up
COLUMNS = (
    Column("link", "link", 25),
    Column("size", "size", 10, unit="(B)"),
    Column("codec", "codec", 5),
    Column("variant", "variant", 10),
    Column("peers", "peers", 5),
    Column("cold_s", "cold", 7, ".2f", "(s)"),
    Column("time_p50_s", "p50", 7, ".2f", "(s)"),
    Column("time_p99_s", "p99", 7, ".2f", "(s)"),
    Column("limit_s", "limit", 6, ".2f", "(s)"),
    Column("percent_of_limit", "%lim", 5, ".0f"),
    Column("floor_s", "floor", 6, ".2f", "(s)"),
    Column("target_s", "target", 6, ".2f", "(s)"),
    Column("algbw_GBps", "algbw", 7, ".4f", "(GB/s)"),
    Column("busbw_GBps", "busbw", 7, ".4f", "(GB/s)"),
    Column("wrong", "#wrong", 6),
    Column("times_plain", "x plain", 7, ".2f"),
    Column("times_gloo", "x gloo", 6, ".2f"),
    Column("wire_ratio", "wire", 6, ".3f", "(x doc)"),
    Column("retransmitted", "retr", 6, ".2%"),
    Column("cpu_s_per_GB", "cpu", 6, ".2f", "(s/GB)"),
    Column("rss_extra_payloads", "extra", 6, ".2f", "(x in)"),
    Column("load", "load", 5, ".1f"),
)

Turn = list[groups.Result]  # what each peer answered


@dataclasses.dataclass
class Plan:
    """How to measure."""

    variants: Sequence[str]
    turns: int
    iterations: int
    stripes: int
    seed: int
    torch: str | None
    gloo_bytes: int


@contextlib.contextmanager
def group(name: str, net: Net, argvs: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """One process per host."""
    env = {**groups.environment(), "GLOO_SOCKET_IFNAME": "wan0"}
    peers = [
        groups.Peer(net.argv(host, argv), env)
        for host, argv in zip(net.hosts, argvs, strict=True)
    ]
    held = groups.Group(name, peers)
    try:
        yield held
    finally:
        held.end()


@contextlib.contextmanager
def jccl(net: Net, cell: Cell, stripes: int, port: int = MASTER_PORT) -> Iterator[Any]:
    """A master on the first host, a bench-peer on every one."""
    built = groups.programs("jccl-master", "bench-peer")
    first, count = net.addr[net.hosts[0]], len(net.hosts)
    with contextlib.ExitStack() as stack:
        proof = ["--insecure"]
        if cell.tls:
            proof = ["--token-file", str(stack.enter_context(groups.token_file()))]
        argv = [built["jccl-master"], "--bind", f"{first}:{port}"]
        argv += ["--start-peers", count, *proof]
        master = groups.Peer(net.argv(net.hosts[0], argv))
        address = master.line(30).removeprefix("JCCL_MASTER=")
        argv = [built["bench-peer"], "--master", address, "--peers", count, "--stepped"]
        argv += ["--stripes", stripes, *proof, "--bind"]
        with group("jccl", net, [[*argv, a] for a in net.addr.values()]) as peers:
            yield peers
        master.process.terminate()
        master.end()


@contextlib.contextmanager
def running(net: Net, cell: Cell, plan: Plan) -> Iterator[dict[str, Any]]:
    """The variants, connected and waiting."""
    with contextlib.ExitStack() as stack:
        found = {}
        if "jccl" in plan.variants:
            found["jccl"] = stack.enter_context(jccl(net, cell, plan.stripes))
        if "plain" in plan.variants:
            addresses = ",".join(net.addr.values())
            argv = [sys.executable, "-m", "benchmarks.peers.plain", addresses]
            argvs = [[*argv, i, PLAIN_STREAMS] for i in range(cell.hosts)]
            found["plain"] = stack.enter_context(group("plain", net, argvs))
        if plan.torch and "gloo" in plan.variants and cell.gloo:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jccl-"))
            argv = [plan.torch, "-m", "benchmarks.peers.gloo", f"{folder}/meet"]
            argvs = [[*argv, cell.hosts, i] for i in range(cell.hosts)]
            found["gloo"] = stack.enter_context(group("gloo", net, argvs))
        yield found


def counters(net: Net) -> dict[str, dict[str, int]]:
    """Of each host since it is up: IP bytes sent, TCP segments sent and sent again."""
    found = {}
    for host, counts in net.stats()["hosts"].items():
        snmp = net.run(host, ["cat", "/proc/net/snmp"], capture_output=True, text=True)
        names, values = re.findall(r"^Tcp: (.*)$", snmp.stdout, re.M)
        tcp = dict(zip(names.split(), map(int, values.split()), strict=True))
        found[host] = {
            "bytes": counts["bytes_in"],
            "segments": tcp["OutSegs"],
            "again": tcp["RetransSegs"],
        }
    return found


def ask(held: Any, seconds: float, batch: dict[str, Any]) -> Turn:
    line = " ".join(f"{key}={value}" for key, value in batch.items())
    for peer in held.peers:
        peer.ask(line)
    end, found = time.monotonic() + seconds, []
    for peer in held.peers:
        while not (text := peer.line(max(0.0, end - time.monotonic()))).startswith("{"):
            pass
        found.append(json.loads(text))
    return found


def spans_s(turn: Turn) -> list[float]:
    """Of each iteration: from the last to enter to the last to return. The master's
    barrier lets peers go a delay apart.
    """
    spans = []
    for i in range(len(turn[0]["begin_ns"])):
        begun = [a["begin_ns"][i] for a in turn]
        ended = [a["begin_ns"][i] + a["times_ns"][i] for a in turn]
        spans.append((max(ended) - max(begun)) / 1e9)
    return spans


class Measuring:
    """One cell on its network."""

    def __init__(self, cell: Cell, plan: Plan, note: Any) -> None:
        self.cell, self.plan, self.note = cell, plan, note
        self.cold: dict[str, float] = {}
        self.extra: dict[str, int] = {}
        self.turns: dict[str, list[Turn]] = {}
        self.traffic: dict[str, list[dict[str, float]]] = {}

    def rows(self) -> Iterable[Row]:
        settings = (*self.cell.settings, f"seed={self.plan.seed}")
        with Net(self.cell.hosts, *settings) as net:
            with running(net, self.cell, self.plan) as found:
                for turn in range(self.plan.turns + 1):
                    names = list(found) if turn % 2 == 0 else list(found)[::-1]
                    for name in names:
                        if not self._turn(net, name, found[name], turn):
                            del found[name]
        return [self._row(name) for name in self.turns]

    def _turn(self, net: Net, name: str, held: Any, turn: int) -> bool:
        """Turn 0 is the cold call. False: the variant was too slow to go on with."""
        iterations = self.plan.iterations if turn and name != "gloo" else 1
        batch = {"size": self.size(name), "codec": self.cell.codec}
        batch |= {"warmup": 0, "iterations": iterations}
        before = counters(net)
        try:
            answers = ask(held, GLOO_S if name == "gloo" else groups.ANSWER_S, batch)
        except click.ClickException as e:
            if name != "gloo":
                raise
            self.note(f"{self.cell.name}: gloo took more than {GLOO_S:.0f} s ({e})")
            for peer in held.peers:
                peer.process.kill()
            return False
        if turn == 0:
            self.cold[name] = spans_s(answers)[0]
            # Only the first batch of a process can tell its memory from the arrays'.
            self.extra[name] = max(a["rss_extra"] or 0 for a in answers)
            return True
        self.turns.setdefault(name, []).append(answers)
        after = counters(net)
        moved = [
            {key: (after[h][key] - before[h][key]) / iterations for key in after[h]}
            for h in net.hosts
        ]
        self.traffic.setdefault(name, []).append(max(moved, key=lambda m: m["bytes"]))
        return True

    def size(self, name: str) -> int:
        if name == "gloo":
            return min(self.cell.size, self.plan.gloo_bytes)
        return self.cell.size

    def _row(self, name: str) -> Row:
        cell, turns = self.cell, self.turns[name]
        size = self.size(name)
        spans = [span for turn in turns for span in spans_s(turn)]
        p50 = percentile(spans, 50)
        every = [answer for turn in turns for answer in turn]
        cpu = [
            (u + s) / 1e9
            for a in every
            for u, s in zip(a["user_ns"], a["system_ns"], strict=True)
        ]
        sent = median(moved["bytes"] for moved in self.traffic[name])
        segments = sum(moved["segments"] for moved in self.traffic[name])
        again = sum(moved["again"] for moved in self.traffic[name])
        columns = {
            "cold_s": self.cold[name],
            "time_p50_s": p50,
            "time_p99_s": percentile(spans, 99),
            "time_min_s": min(spans),
            "iterations": len(spans),
            "limit_s": cell.limit_s,
            "floor_s": cell.floor_s,
            "target_s": cell.target_s,
            "algbw_GBps": size / p50 / 1e9,
            "busbw_GBps": size / p50 / 1e9 * 2 * (cell.hosts - 1) / cell.hosts,
            "wrong": sum(a["wrong"] for a in every),
            "wire_ratio": sent / (cell.wire_bytes * size / cell.size),
            "retransmitted": again / max(1.0, segments),
            "cpu_s_per_GB": median(cpu) / (size / 1e9),
            "rss_peak": max(a["rss_peak"] for a in every),
            "rss_extra_payloads": self.extra[name] / size if name == "jccl" else None,
            "attempts": max(a["attempts"] for a in every),
            "load": max(a["load"] for a in every),
        }
        if size == cell.size:
            columns["percent_of_limit"] = 100 * cell.limit_s / p50
        for other in ("plain", "gloo"):
            if other in self.turns and other != name:
                theirs = [s for turn in self.turns[other] for s in spans_s(turn)]
                rate = self.size(other) / percentile(theirs, 50)
                columns[f"times_{other}"] = size / p50 / rate
        shown = f"jccl{' tls' if cell.tls else ''}" if name == "jccl" else name
        return {"cell": {"variant": shown, "size": size}, "columns": columns}


def run_first(module: str) -> None:
    """Starts a benchmark over as a session of its own that goes before all others."""
    args = [a for a in sys.argv[1:] if a != "--first"]
    argv = [sys.executable, "-m", module, *args]
    before = 'echo -20 2>&- >/proc/self/autogroup; exec nice -n -20 "$@"'
    os.execvp("setsid", ["setsid", "-w", "sh", "-c", before, "sh", *argv])


def chosen(pattern: str | None, full: bool, size: int | None) -> list[Cell]:
    found = cells()
    if full and not size:
        small = [
            dataclasses.replace(c, size=size, floor_s=None, target_s=None)
            for size in (M, 16 * M, 64 * M)
            for c in found
            if c.size != size
        ]
        found += small
    if size:
        found = [
            dataclasses.replace(c, size=size, floor_s=None, target_s=None)
            for c in found
        ]
    if pattern:
        globs = [f"*{part}*" for part in pattern.split(";")]
        found = [c for c in found if any(fnmatch.fnmatch(c.name, g) for g in globs)]
        if not found:
            names = "\n".join(c.name for c in cells())
            raise click.UsageError(f"no cell fits {pattern!r} of\n{names}")
    return found


@click.command()
@options
@click.option("--cells", "pattern", help="Names to measure: globs, with ';' between.")
@click.option("--size", type=int, help="Bytes, instead of the cells' own.")
@click.option("--first", is_flag=True, help="Before all other programs (nice -20).")
@click.option("--turns", type=int, help="Of each variant, after the cold one [2; 4].")
@click.option("--iterations", type=int, help="Of a turn [2; 3].")
@click.option("--stripes", default=0, show_default=True, help="Per link; 0: automatic.")
@click.option("--seed", default=1, show_default=True, help="Of the links' losses.")
@click.option("--variants", default=",".join(VARIANTS), show_default=True)
@click.option("--torch-python", help="Interpreter that has torch [this one].")
def main(
    full: bool,
    as_json: bool,
    out: str | None,
    pattern: str | None,
    size: int | None,
    first: bool,
    variants: str,
    torch_python: str | None,
    turns: int | None,
    iterations: int | None,
    stripes: int,
    seed: int,
) -> None:
    """Measure all_reduce over emulated wide-area links, against plain TCP and Gloo."""
    if reason := missing():
        click.echo(f"# wide_area skipped: {reason}", err=as_json)
        return
    if first:
        run_first("benchmarks.wide_area")
    table = Table(COLUMNS, as_json)
    names = [name for name in VARIANTS if name in variants.split(",")]
    torch = groups.torch_python(torch_python) if "gloo" in names else None
    if "gloo" in names and torch is None:
        table.note(groups.NO_TORCH)
    plan = Plan(
        names,
        turns or (4 if full else 1),
        iterations or (3 if full else 2),
        stripes,
        seed,
        torch,
        gloo_bytes=256 * M if full else GLOO_BYTES_QUICK,
    )
    groups.programs("jccl-master", "bench-peer")
    kept = Cells.of("wide_area", out, full)
    wrong = 0
    for cell in chosen(pattern, full, size):
        key = {
            "link": cell.link,
            "size": cell.size,
            "codec": cell.codec,
            "tls": cell.tls,
            "peers": cell.hosts,
            "stripes": stripes,
            "seed": seed,
        }
        rows = kept.rows(key, Measuring(cell, plan, table.note).rows)
        wrong += sum(row["columns"]["wrong"] for row in rows)
        table.show(rows)
    if wrong:
        raise click.ClickException(f"{wrong} elements are wrong")


if __name__ == "__main__":
    main()
