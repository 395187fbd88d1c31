"""The lab for wide-area links: its settings, and what programs see on its hosts."""

import pytest

from benchmarks.wan import WanError, missing, parse, selftest
from benchmarks.wan.settings import Topology, host_names, load, split_item


@pytest.mark.parametrize(
    "kind, text, value",
    [
        ("rate", "1gbit", 1e9),
        ("rate", "200Mbps", 2e8),
        ("rate", "5 kbit/s", 5e3),
        ("time", "80ms", 80e6),
        ("time", 0, 0.0),
        ("frac", "0.1%", 0.001),
        ("frac", "1e0", 1.0),
        ("bool", "1", 1.0),
        ("mode", "Police", "police"),
    ],
)
def test_values_have_units(kind, text, value):
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    "kind, text",
    [
        ("rate", "fast"),
        ("time", "80"),
        ("frac", "2"),
        ("mode", "1"),
        ("float", "1.2.3"),
    ],
)
def test_values_without_sense_are_refused(kind, text):
    with pytest.raises(WanError):
        parse(kind, text)


def test_a_setting_names_its_target():
    assert split_item("h0.rate=1gbit") == ("h0", "rate", "1gbit")
    assert split_item("h0:h1.loss=1%") == ("h0:h1", "loss", "1%")
    assert split_item("seed=2") == ("", "seed", "2")
    with pytest.raises(WanError):
        split_item("rate")


def test_later_settings_win_and_a_path_has_two_directions():
    topology = Topology(host_names("3"))
    for text in "rtt=80ms", "h0-h1.rtt=10ms", "h1:h2.delay=1ms", "rate=1gbit":
        topology.apply(*split_item(text))
    delays = {p: s["delay"] / 1e6 for p, s in topology.path.items()}
    assert delays["h0:h1"] == delays["h1:h0"] == 5
    assert (delays["h1:h2"], delays["h2:h1"], delays["h0:h2"]) == (1, 40, 40)
    assert topology.rtt("h1:h2") == 41e6
    commands = topology.commands()
    assert "host 2 up 1000000000.0" in commands
    assert "host 0 queue 80000000.0" in commands  # one BDP of its longest path


def test_a_file_has_tables_for_targets():
    items = load(selftest.HERE / "example.toml")
    assert ("", "rtt", "80ms") in items and ("us-home", "rtt", "30ms") in items


@pytest.mark.parametrize("test", selftest.FUNCTIONAL, ids=lambda t: t.__name__)
def test_hosts_see_what_is_promised(test):
    if reason := missing():
        pytest.skip(reason)
    wrong = [(what, detail) for what, ok, detail in selftest.checks(test) if not ok]
    assert not wrong
