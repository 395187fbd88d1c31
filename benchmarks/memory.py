"""What a peer holds per parameter, on the CPU: in its state, its process, a checkpoint.

The envelope. With f32 parameters and adamw a peer alone holds 12 bytes: parameters and
two moments. The plain outer optimizer adds the anchor and a momentum, 8 more. Peaks
hold besides what a step computes with (here next to nothing: the gradients are the
distance from a point) and, in a round, what is sent and what is received.

Two processes, one leaf. `state` is exact; `standing`, `step` and
`round` are resident memory over what the process held before its first array: between
steps, and at the peak of each. An accelerator holds `state` and `step` in its memory,
and the host what a round moves.

`--processes P`: each site has P processes, over whose devices the leaf is cut, and the
figures are of the process that holds most, for each parameter of the whole model. They
should fall as 1/P. The checkpoint is all of the site's.

`--joiner`: what one more peer holds over its own arrays, which are as large as the
state: at the peak of `sync_state`, and after it. The bound is three times the state: a
copy of those arrays, what arrives, and the result.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterator

import click

from benchmarks import groups
from benchmarks.common import Cells, Column, Row, Table, options
from benchmarks.peers.remembered import FORMS

FIGURES = ("state", "standing", "step", "round", "checkpoint")
COLUMNS = (
    Column("form", "form", 9),
    Column("processes", "processes", 10),
    *(Column(name, name, 10, ".1f", "(B/par)") for name in FIGURES),
)
OF_JOINER = (
    Column("form", "form", 9),
    *COLUMNS[2:4],
    Column("peak", "peak", 10, ".1f"),
)


@click.command()
@options
@click.option("--joiner", is_flag=True, help="One that joins, instead.")
@click.option("--parameters", default=1 << 25, show_default=True)
@click.option("--form", "forms", type=click.Choice(list(FORMS)), multiple=True)
@click.option(
    "--processes",
    "counts",
    type=click.Choice(["1", "2", "4"]),
    multiple=True,
    help="Sites of so many processes that hold the leaf together, for the form plain.",
)
def main(
    out: str | None,
    as_json: bool,
    full: bool,
    joiner: bool,
    parameters: int,
    forms: tuple[str, ...],
    counts: tuple[str, ...],
) -> None:
    """Bytes per parameter of each form of DiLoCo."""
    cells = Cells.of("memory", out, full)
    if joiner:
        table = Table(OF_JOINER, as_json)
        for kind in ("numpy", "jax"):
            cell = {"form": kind, "joiner": True, "parameters": parameters}
            table.show(cells.rows(cell, functools.partial(_join, kind, parameters)))
        return
    table = Table(COLUMNS, as_json)
    for count in counts:
        measured = functools.partial(_measure, "plain", parameters, int(count))
        cell = {"form": "plain", "processes": int(count), "parameters": parameters}
        table.show(cells.rows(cell, measured))
    if counts:
        return
    for form in forms or FORMS:
        measured = functools.partial(_measure, form, parameters)
        table.show(cells.rows({"form": form, "parameters": parameters}, measured))


def _measure(form: str, parameters: int, processes: int = 0) -> Iterator[Row]:
    """Of the peers of two sites the larger figure counts."""
    master = groups.programs("jccl-master")["jccl-master"]
    serving = groups.Peer([str(master), "--bind", "127.0.0.1:0"])
    address = serving.line(30).removeprefix("JCCL_MASTER=")
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "benchmarks.peers.remembered", address]
        peers = [
            groups.Peer(
                [*program, site, form, str(parameters), f"{folder}/{site}", *place]
            )
            for site in ("one", "other")
            for place in _places(processes)
        ]
        said = [peer.answer() for peer in peers]
        for peer in peers:
            peer.end()
    serving.process.terminate()
    serving.end()
    names = [name for name in FIGURES if name in said[0]]
    yield {"columns": {name: max(one[name] for one in said) for name in names}}


def _join(kind: str, parameters: int) -> Iterator[Row]:
    """One holder, one joiner."""
    with groups.master(1) as address:
        said = joined(address, kind, parameters)
    yield {"columns": {"state": 4.0, **said}}


def joined(address: str, kind: str, parameters: int) -> dict[str, float]:
    """What a joiner says of itself, beside a peer that holds the state already."""
    program = [sys.executable, "-m", "benchmarks.peers.joiner", address]
    peers = []
    try:
        for site in ("holder", "joiner"):
            peers.append(groups.Peer([*program, site, kind, str(parameters)]))
            said = peers[-1].answer()
    finally:
        for peer in reversed(peers):
            peer.end()
    return {name: said[name] for name in ("standing", "peak")}


def _places(processes: int) -> list[list[str]]:
    """What the processes of a site are told besides; none: one that is a peer alone."""
    if not processes:
        return [[]]
    coordinator = f"127.0.0.1:{groups.free_port()}"
    return [[str(one), str(processes), coordinator] for one in range(processes)]


if __name__ == "__main__":
    main()
