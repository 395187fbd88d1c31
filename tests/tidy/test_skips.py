"""A run fails when a test is skipped for a reason of its own, or too many are."""

import math
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests import skips
from tests.docs.markdown import ROOT
from tests.gpu import test_gpu

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests import skips
skips.REASONS = (skips.Reason("known", 1), skips.Reason("no device", 9, hardware=True))

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(skips.Plugin())
"""


def outcome(folder, *reasons, options=()):
    tests = [
        f"@pytest.mark.skip({why!r})\ndef test_{i}(): pass"
        for i, why in enumerate(reasons)
    ]
    (folder / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (folder / "test_it.py").write_text(
        "\n\n".join(["import pytest", "def test_x(): pass", *tests])
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    ended = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "xdist"])
def test_a_skip_within_its_limit_is_counted(tmp_path, options):
    code, said = outcome(tmp_path, "known", "no device", "no device", options=options)
    assert code == 0, said
    assert "1 tests were skipped\n  1  known" in said
    assert "2 tests need hardware that is not here\n  2  no device" in said


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "xdist"])
def test_a_skip_for_another_reason_fails_the_run(tmp_path, options):
    code, said = outcome(tmp_path, "known", "because", options=options)
    assert code == 1 and "for a reason that tests/skips.py has not: because" in said


def test_more_skips_than_a_reason_may_have_fail_the_run(tmp_path):
    code, said = outcome(tmp_path, "known", "known")
    assert code == 1 and "2 skipped, 1 may be: known" in said


def test_every_reason_in_the_table_is_one_of_a_test():
    others = (ROOT / "benchmarks/wan/net.py", ROOT / "tests/slurm/cluster.py")
    files = [*(ROOT / "tests").rglob("test_*.py"), *others]
    text = "\n".join(path.read_text() for path in files)
    for reason in skips.REASONS:
        assert re.search(rf"[\"']{reason.pattern.removesuffix('.*')}", text), reason


def test_no_machine_skips_more_of_the_gpus_tests_than_it_may():
    """Nor fewer: a limit with room to spare hides the next test that is skipped."""
    counts = Counter()
    for name, test in vars(test_gpu).items():
        if name.startswith("test_"):
            marks = test.pytestmark
            cases = [len(m.args[1]) for m in marks if m.name == "parametrize"]
            for mark in marks:
                if mark.name == "skipif":
                    counts[mark.kwargs["reason"]] += math.prod(cases)
    limits = {reason.pattern: reason.limit for reason in skips.REASONS}
    assert counts == {
        why: limits[why] for why in ("no CUDA GPU", "one GPU", "there is a GPU")
    }
