"""jccl.planning against published tables and its own closed forms, and `jccl plan`."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import published
from jccl import planning
from jccl.cli import advice, failures, plan
from jccl.planning import Method, Model, Wide

GRID = np.geomspace(0.1e9, 1000e9, 50)
RATES = np.geomspace(1e8, 1e12, 9)


def notches_off(bits_per_s, gbit):
    """How many points of the published grid lie between two bandwidths."""

    def place(rate):
        return round(math.log(rate / GRID[0]) / math.log(GRID[1] / GRID[0]))

    return abs(place(bits_per_s) - place(gbit * 1e9))


@pytest.mark.parametrize("size", published.TABLE_4)
def test_every_cell_of_table_4_is_met_within_a_notch(size):
    model, rows = published.TABLE_4[size]
    for name, cells in rows.items():
        method = published.table_4_method(name, model)
        reached = planning.utilization(model, method, GRID)
        for target, cell in zip(published.TABLE_4_TARGETS, cells, strict=True):
            ours = planning.crossing(GRID, reached, target)
            # Small cells are printed to one place, which is coarser than the grid.
            assert notches_off(ours, cell) <= 1, (name, target, ours / 1e9, cell)


@pytest.mark.parametrize("place", published.INTELLECT_1)
def test_intellect_1_spent_its_time_as_the_closed_form_says(place):
    seconds, share = published.INTELLECT_1[place]
    sites = 14
    model = Model(1e10, 32, published.INTELLECT_1_STEPS_S / 100)
    # Its ring sends 8 bits both ways, which is what direct sends.
    cost = Wide(sites, rtt_s=0.0, agreement=False)
    rate = cost.wire_bits(model.params, 8.0) / seconds
    reached = planning.utilization(model, Method(100, bits=8.0), np.array(rate), cost)
    assert abs(float(reached) - share) < 0.005
    assert 0.3e9 < rate < 1.6e9  # its links had 0.5 to 4 Gbit/s


@pytest.mark.parametrize("sites", [2, 8])
@pytest.mark.parametrize("rtt_s", [0.0, 0.1])
def test_a_blocking_round_takes_what_the_closed_form_says(sites, rtt_s):
    model, cost = Model(1e9, 24, 0.2), Wide(sites, rtt_s)
    method = Method(50, bits=8.0)
    simulated = planning.utilization(model, method, RATES, cost)
    assert np.allclose(
        simulated, planning.closed_form(model, method, RATES, cost), rtol=1e-9
    )


def test_overlap_hides_a_round_if_and_only_if_the_closed_form_says():
    model, cost = Model(1e9, 24, 0.2), Wide(4, 0.05)
    for overlap in (1, 3, 5, 50):
        method = Method(50, 1 if overlap == 50 else 10, overlap, bits=8.0)
        simulated = planning.utilization(model, method, RATES, cost)
        paper = planning.closed_form(model, method, RATES, cost)
        assert ((simulated > 1 - 1e-9) == (paper > 1 - 1e-9)).all()


def test_a_ring_of_many_sites_waits_for_its_hops():
    direct, ring = Wide(64, 0.1), Wide(64, 0.1, "ring")
    assert direct.latency_s() == pytest.approx(0.3)
    assert ring.latency_s() == pytest.approx(6.5)  # 2·63 one-way delays, 2 round trips
    model = Model(1e10, 48, 0.8)
    method = Method(100, 10, overlap=5, bits=8.0)
    assert planning.required(model, method, 0.95, direct) < 5e9
    assert planning.required(model, method, 0.95, ring) == math.inf


def test_bytes_are_those_of_the_plans():
    assert Wide(4, 0.0).wire_bits(100, 8.0) == 2 * 0.75 * 800
    assert Wide(4, 0.0, "ring").wire_bits(100, 8.0) == 0.75 * (3200 + 800)


def of_research(sites=1000, fragments=1, plan="direct"):
    """10 billion parameters as int8, 1 Gbit/s, 100 ms, a failure per site and day."""
    return planning.under_failures(
        1e10, 8.0, fragments, 1e9, Wide(sites, 0.1, plan), 86400.0
    )


@pytest.mark.parametrize(
    ("fragments", "seconds", "deaths", "tries"),
    [(1, 160, 1.85, 6.4), (12, 13.6, 0.16, 1.17), (48, 3.6, 0.042, 1.04)],
)
def test_a_thousand_peers_try_as_often_as_the_formula_says(
    fragments, seconds, deaths, tries
):
    found = of_research(fragments=fragments)
    assert found.seconds == pytest.approx(seconds, rel=0.01)
    assert found.deaths == pytest.approx(deaths, rel=0.03)
    assert found.tries == pytest.approx(tries, rel=0.01)
    assert found.links == 999
    assert found.sent_bytes == pytest.approx(2 * 0.999 * 1e10 / fragments)


def test_the_time_with_tries_is_that_of_drawn_deaths():
    found, rng = of_research(), np.random.default_rng(0)
    between_s = 86400.0 / 1000
    total = np.zeros(20_000)
    going = np.ones(len(total), bool)
    while going.any():
        death = rng.exponential(between_s, len(total))
        ends = death > found.seconds
        lost = death + planning.SILENCE_S
        total += np.where(going, np.where(ends, found.seconds, lost), 0.0)
        going &= ~ends
    assert found.mean_s == pytest.approx(total.mean(), rel=0.03)


def test_fragments_lower_what_deaths_cost_and_few_sites_hardly_pay():
    times = [of_research(fragments=part).model_s for part in (1, 4, 12)]
    assert times == sorted(times, reverse=True)
    assert of_research(sites=16).tries == pytest.approx(1.03, abs=0.005)
    ring = of_research(plan="ring")
    assert ring.links == 2 and ring.tries > 100  # 1,998 one-way delays, and f32
    assert of_research(sites=100_000, plan="ring").tries == math.inf


def test_more_fragments_than_steps_are_refused():
    with pytest.raises(ValueError, match="fragments=5 must be from 1 to sync_every=4"):
        Method(4, 5)


def test_a_recommendation_meets_the_target_or_is_the_closest():
    model = Model(1e9, 24, 0.1)
    case = advice.Case(model, 4, 1e9, 0.1, 0.95)
    best = advice.recommend(case)
    assert best.utilization >= 0.95
    cheaper = [s for s in advice.settings(case) if advice.loss_percent(*s) < 0.1]
    rate = np.asarray(case.bits_per_s)
    for method, _ in cheaper:
        reached = planning.utilization(model, method, rate, case.cost("direct"))
        assert reached < 0.95  # or it would have been taken
    hopeless = advice.recommend(advice.Case(model, 4, 1e6, 0.1, 0.95))
    assert hopeless.utilization < 0.95
    assert hopeless.method.sync_every == max(advice.SYNC_EVERY)


def run(*arguments):
    found = CliRunner().invoke(plan.command, [str(a) for a in arguments])
    return found.exit_code, found.output


BASIC = ("--params", "10B", "--sites", 8, "--link", "1gbit", "--rtt", "100ms")


def test_the_command_prints_a_setting_to_paste():
    code, text = run(*BASIC)
    assert code == 0
    assert text.index("Quality first: ") < text.index("Recommended:")
    assert "jccl.diloco(comm, inner, sync_every=" in text
    code, text = run(*BASIC, "--json")
    found = json.loads(text)
    assert code == 0 and found["recommended"]["utilization"] >= 0.95
    assert found["methods"][0]["required_bits_per_s"] is None  # latency alone


def test_the_command_says_what_its_recommendation_costs_before_it_recommends():
    case = advice.Case(Model(10e9, 48, 0.8), 8, 20e6, 0.1, 0.95)
    best = advice.recommend(case)
    less = advice.less_loss(case, best)
    text = plan._quality(best, less)
    parts = advice.parts_of_loss(best.method, best.codec)
    assert best.name == "eager" and best.loss_percent > 4
    assert f"costs +{best.loss_percent:.1f} % of perplexity" in text
    assert sum(part.percent for part in parts) == pytest.approx(best.loss_percent)
    for part in parts:
        assert part.measured in text and "arXiv" in part.measured
    assert "2.441 nats" in text  # of its own, too: it is eager
    assert less
    for row in less:
        assert row.loss_percent <= 0.75 * best.loss_percent
        assert row.utilization < best.utilization


def test_our_own_figures_are_those_of_the_document():
    told = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    (row,) = re.findall(r"^\| overlap of a round .*$", told, re.M)
    synchronous, eager = (
        float(re.search(rf"{name} ([\d.]+) ±", row)[1])
        for name in ("synchronous", "eager")
    )
    said = " ".join(plan._OWN_OF_EAGER)
    assert f"{eager:.3f} nats against {synchronous:.3f}" in said
    assert f"+{100 * (math.exp(eager - synchronous) - 1):.0f} % of perplexity" in said


def test_the_command_prints_what_deaths_do_to_a_round_of_a_thousand():
    code, text = run("--peers", 1000, "--mtbf", "24h")
    assert code == 0 and "direct: 999 links of each site" in text
    row = re.compile(
        r"^ +int8 +(\d+) +([\d.]+ .B) +([\d.]+ s) +([\d.]+) +([\d.]+)", re.M
    )
    found = {int(part): rest for part, *rest in row.findall(text)}
    # A little above 6.4: int8 with its scales has 8.125 bits.
    assert found[1] == ["20.3 GB", "163 s", "1.88", "6.57"]
    assert found[48] == ["423 MB", "3.68 s", "0.0426", "1.04"]


def test_more_peers_than_a_run_can_have_are_arithmetic():
    case = advice.Case(Model(1e10, 48, 0.8), 100_000, 1e6, 0.1, 0.95)
    best = advice.evaluate("DiLoCo", Method(100), "int8", case)
    rows = failures.rounds(case, best, 60.0)
    text = failures.text(case, rows, best, 60.0)
    assert "A run has at most 1024 peers" in text and "> 10,000" in text
    held = failures.plain(rows, best, 60.0)
    assert held["rounds"][0]["tries"] is None
    assert {row["links"] for row in held["rounds"]} == {99_999}
    limits = (Path(__file__).parents[2] / "cpp/base/limits.h").read_text()
    assert f"kPeersMax = {failures.PEERS_MAX};" in limits


def test_a_bound_on_the_loss_is_kept():
    code, text = run(*BASIC, "--max-loss", "0.5%")
    assert code == 0 and "on this link with +0.5 % at most" in text
    case = advice.Case(Model(10e9, 48, 0.8), 8, 1e9, 0.1, 0.95)
    assert advice.recommend(case, 0.5).loss_percent <= 0.5


def test_the_command_says_when_nothing_reaches_the_target():
    code, text = run(*BASIC[:4], "--link", "1mbit", "--rtt", "100ms")
    assert code == 0 and "Nothing reaches 95% on this link" in text


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--params", "10X", "10B"),
        ("--link", "fast", "1gbit"),
        ("--rtt", "-3ms", "100ms"),
        ("--target", "100%", "below 100%"),
        ("--sites", "1", "x>=2"),
        ("--mtbf", "24", "24h"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_with_an_example(option, value, hint):
    code, text = run(*BASIC, option, value)
    assert code == 2 and hint in text
