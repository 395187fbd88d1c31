"""benchmarks.stripes: the comparison with fixed counts; links that are not there."""

import pytest
from click.testing import CliRunner

from benchmarks import stripes


def test_the_last_calls_are_compared_with_the_best_fixed_count():
    course = stripes.courses(1 << 20)[0]
    measuring = stripes.Measuring(course, [0, 4, 8], calls=6, idle=0)
    measuring.times = {0: [9, 9, 2, 2, 2, 2], 4: [1, 1, 3, 3, 3, 3], 8: [4] * 6}
    rows = {row["cell"]["variant"]: row["columns"] for row in measuring.medians()}
    assert rows["auto"]["time_s"] == 2
    assert rows["auto"]["times_best"] == 1.5
    assert rows["4"]["times_best"] == 1
    assert rows["8"]["times_best"] == 0.75


def test_a_rate_that_halves_comes_back():
    calls, rates = zip(*stripes.courses(1 << 20)[-1].changes, strict=True)
    assert rates == ("rate=500mbit", "rate=1gbit") * 2
    assert max(calls) < 12 - stripes.LAST + 1


def test_links_without_the_name_are_not_measured():
    if stripes.missing():
        pytest.skip(stripes.missing())
    done = CliRunner().invoke(stripes.main, ["--links", "nowhere"])
    assert done.exit_code == 0
    assert done.output == ""
