"""What benchmarks.gpu measures, on the CPU backend: rows that its cells and table take,
and no wrong value. Times and rates are those of another machine, so none is looked at.
"""

import json

import jax
import pytest

from benchmarks import gpu
from benchmarks.common import Cells, Table

PARTS = {
    "staging": (lambda device: gpu.staging(device, 1, 2), ["bus", "round"]),
    "overlap": (
        lambda device: gpu.overlap(device, 1, 2, width=64),
        ["steps", "blocking", "overlap"],
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_rows_are_of_the_form_that_cells_and_tables_take(part, tmp_path, capsys):
    measure, names = PARTS[part]
    device = jax.devices("cpu")[0]
    cells = Cells("gpu", tmp_path, resume=False)
    rows = cells.rows({"part": part, "mib": 1}, lambda: measure(device))
    assert [row["cell"]["what"] for row in rows] == names
    assert all(row["cell"]["part"] == part for row in rows)
    assert [row["columns"]["wrong"] for row in rows] == [0] * len(names)
    assert all(row["columns"]["ms"] > 0 for row in rows)

    (kept,) = tmp_path.glob("*.json")
    assert json.loads(kept.read_text()) == rows

    Table(gpu.COLUMNS, as_json=False).show(rows)
    head, unit, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[1] == "what" and "(GB/s)" in unit
    assert [line.split()[0] for line in lines] == names
    known = {column.name for column in gpu.COLUMNS}
    assert all({"what", *row["columns"]} == known for row in rows)
