"""Limits on paper, and how a wide-area call is timed. What comes out of the program
itself is run by tests/docs."""

import pytest
from click.testing import CliRunner

from benchmarks import wide_area
from benchmarks.wan.settings import Topology, host_names, split_item
from benchmarks.wide_cells import cells, slow_pair, slow_uplink


def cell(link, codec):
    return next(c for c in cells() if (c.link, c.codec) == (link, codec))


def test_limits_are_bytes_over_the_payload_rate_and_a_round_trip():
    assert cell("1 Gbit/s 80 ms", "none").limit_s == pytest.approx(2.225 + 0.08, 0.001)
    assert cell("1 Gbit/s 80 ms", "int8").limit_s == pytest.approx(0.565 + 0.08, 0.001)
    thin = cell("200 Mbit/s 150 ms 1%", "int8")
    assert thin.limit_s == pytest.approx(2.825 + 0.15, 0.001)


def test_limits_of_uneven_triangles_are_those_of_the_best_shares():
    pair, uplink = slow_pair(), slow_uplink()
    payload_s = pair.size * 8 / (1e9 * 1448 / 1500)
    slow, third = min(
        (
            (max(10 * (s0 + s1), 1 + s2), s2)
            for s2 in (i / 1100 for i in range(1101))
            for s0, s1 in [((1 - s2) / 2, (1 - s2) / 2)]
        )
    )
    assert third == pytest.approx(9 / 11)
    assert pair.limit_s - 0.04 == pytest.approx(slow * payload_s)
    assert uplink.limit_s - 0.04 == pytest.approx(10 * payload_s / 4 * (1 + 4 / 256))


def test_every_cell_is_a_network_and_names_are_unique():
    names = [c.name for c in cells()]
    assert len(set(names)) == len(names)
    for c in cells():
        topology = Topology(host_names(c.hosts))
        for text in c.settings:
            topology.apply(*split_item(text))
        longest = max(topology.rtt(p) for p in topology.path) / 1e6
        assert longest == c.rtt_ms


def test_a_call_counts_from_the_last_to_enter_to_the_last_to_return():
    early = {"begin_ns": [0, 10], "times_ns": [100, 5]}
    late = {"begin_ns": [40, 10], "times_ns": [50, 20]}
    assert wide_area.spans_s([early, late]) == [60e-9, 20e-9]


def test_unknown_cells_are_refused_with_the_names():
    if wide_area.missing():
        pytest.skip(wide_area.missing())
    done = CliRunner().invoke(wide_area.main, ["--cells", "nowhere"])
    assert done.exit_code == 2 and "1 Gbit/s 80 ms" in done.output
