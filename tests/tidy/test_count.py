""".ci/count: what the last line of .ci/run says."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

GTEST = """<testsuites><testsuite name="A">
<testcase name="runs" status="run" result="completed"/>
<testcase name="breaks" status="run"><failure message="x"/></testcase>
<testcase name="is_off" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest">
<testcase name="runs"/><testcase name="runs_too"/>
<testcase name="is_skipped"><skipped message="no GPU"/></testcase>
<testcase name="has_no_fixture"><error message="x"/></testcase>
</testsuite></testsuites>"""


def count(folder, files, stages):
    for name, text in files.items():
        path = folder / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    rows = folder / "stages"
    rows.write_text("".join(f"{name}\t{code}\t9\t9\n" for name, code in stages.items()))
    command = [ROOT / ".ci" / "count", folder / "results", rows]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return tuple(map(int, words.split()))


def test_tests_are_counted_by_what_their_files_say(tmp_path):
    files = {"ASan and UBSan/a.xml": GTEST, "Python tests/pytest.xml": PYTEST}
    assert count(tmp_path, files, {"ASan and UBSan": 1, "Python tests": 1}) == (3, 2)


def test_a_stage_without_files_is_one_test(tmp_path):
    assert count(tmp_path, {}, {"set-up": 0, "style": 0, "crowds": 2}) == (2, 1)


def test_a_stage_that_fails_is_a_failure_whatever_its_files_say(tmp_path):
    files = {
        "Python tests/pytest.xml": "<testsuite><testcase name='runs'/></testsuite>"
    }
    assert count(tmp_path, files, {"Python tests": 137}) == (1, 1)


def test_what_no_stage_left_does_not_count(tmp_path):
    assert count(tmp_path, {"of another run/a.xml": GTEST}, {"style": 0}) == (1, 0)


def stage(folder, name, stages):
    command = [ROOT / ".ci" / "stage", name, "sh", "-c", "exit 3"]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}
    if stages is not None:
        environment["JCCL_STAGES"] = str(stages)
    return subprocess.run(command, env=environment, capture_output=True).returncode


def test_a_run_goes_on_after_a_failure_unless_others_need_the_stage(tmp_path):
    rows = tmp_path / "stages"
    assert stage(tmp_path, "crowds", rows) == 0
    assert stage(tmp_path, "build programs", rows) == 3
    assert stage(tmp_path, "set-up", rows) == 3
    assert [row.split("\t")[:2] for row in rows.read_text().splitlines()] == [
        ["crowds", "3"],
        ["build programs", "3"],
        ["set-up", "3"],
    ]
    assert stage(tmp_path, "crowds", None) == 3  # by hand a command's code is its own
