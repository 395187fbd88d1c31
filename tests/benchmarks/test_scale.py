"""benchmarks.scale and benchmarks.master_load in tiny sizes: right results, all
columns, and counts that may not grow. Never times."""

import pytest
from click.testing import CliRunner

from benchmarks import master_load, scale
from benchmarks.common import read_rows
from benchmarks.growth import exponent, line


def rows_of(command, tmp_path, *argv):
    done = CliRunner().invoke(command, [*argv, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return read_rows(tmp_path), done.output


def test_exponents_and_lines_are_those_of_exact_points():
    xs = (1, 4, 16, 256)
    assert exponent([(x, 3 * x**1.5) for x in xs]) == pytest.approx(1.5)
    assert line([(x, 7 + 0.25 * x) for x in xs]) == pytest.approx((7, 0.25))
    assert exponent([(4, 2)]) == 0 and line([(4, 2)]) == (2, 0) and line([]) == (0, 0)


def test_what_a_peer_costs_the_master_in_messages_does_not_grow_with_the_peers(
    tmp_path,
):
    rows, output = rows_of(
        master_load.main, tmp_path, "--peers", "4,80", "--rounds", "20"
    )
    assert "bytes from the master: peers^" in output
    assert "80 peers admitted, and their first round, within " in output
    rounds = {
        r["cell"]["peers"]: r["columns"] for r in rows if r["cell"]["phase"] == "rounds"
    }
    for columns in rounds.values():
        assert columns["wrong"] == 0 and columns["rounds"] == 20
        # READY and DONE, START and outcome; heartbeats may come on top.
        assert 2 <= columns["messages_in"] < 3 and 2 <= columns["messages_out"] < 3
    assert rounds[80]["bytes_out"] < 1.5 * rounds[4]["bytes_out"]
    replaced = [r for r in rows if r["cell"]["phase"] == "replace"]
    assert all(r["columns"]["bytes_out"] < 1500 for r in replaced)  # no whole roster
    heads = {column.name for column in master_load.COLUMNS}
    assert all(heads <= {*r["cell"], *r["columns"]} for r in rows)


def test_scale_varies_one_number_and_checks_all_results(tmp_path):
    rows, output = rows_of(
        scale.main,
        tmp_path,
        *("--scale", "0.001", "--turns", "1", "--only", "leaves,calls,fairness"),
    )
    assert {r["cell"]["over"] for r in rows} == {"leaves", "calls", "fairness"}
    assert not any(r["columns"]["wrong"] for r in rows)
    leaves = [r["cell"]["value"] for r in rows if r["cell"]["over"] == "leaves"]
    assert leaves == [1, 10, 100, 500, 2000]
    assert "500 of 100 KB take" in output
