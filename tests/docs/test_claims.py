"""What README.md and docs/reliability.md claim is tied to tests that exist."""

import re

import pytest

from tests.docs.markdown import LINK, NAMED_IN, ROOT, name
from tests.planted import registry

README, RELIABILITY = ROOT / "README.md", ROOT / "docs" / "reliability.md"
CLAIMS = [
    (README, "When things die"),
    (RELIABILITY, "The promises"),
    (RELIABILITY, "Faults"),
]
BUGS = "Bugs that were found"
# Of ctest, of the failpoints' cases, and tests in words.
OTHER_NAMES = {"fuzz_corpora", "fuzz_reached", "codec_test"}
FAILPOINT_CASE = re.compile(r"(kill|stop) at (peer|master)\.[\w-]+")


def rows(path, heading):
    """Cells of a section's table, without its head."""
    text = path.read_text()
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.S | re.M
    )[1]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table]
    return [row for row in cells[1:] if set("".join(row)) - set("-| ")]


def shows(path, target):
    """Whether a link names a test, a case, or a scenario, which is one."""
    file, _, named = target.partition("#")
    source = path.parent / file
    if source.suffix == ".txt":
        return source.parent.name == "scenarios" and source.exists()
    tested = "tests" in source.parts or source.name.endswith("_test.cc")
    known = NAMED_IN.get(source.suffix)
    return bool(tested and known and named in known.findall(source.read_text()))


CLAIMED = [
    pytest.param(path, row, id=f"{name(path)}: {row[0][:40]}")
    for path, heading in CLAIMS
    for row in rows(path, heading)
]


def test_the_tables_of_claims_are_found():
    found = {heading: len(rows(path, heading)) for path, heading in CLAIMS}
    assert found["When things die"] >= 10
    assert found["The promises"] >= 11
    assert found["Faults"] >= 30


@pytest.mark.parametrize("path, row", CLAIMED)
def test_a_claim_names_a_test(path, row):
    assert any(shows(path, target) for target in LINK.findall(row[-1])), row


def test_a_file_alone_shows_nothing():
    assert shows(RELIABILITY, "../tests/stress/network.py#resets")
    assert not shows(RELIABILITY, "../tests/stress/network.py")
    assert not shows(RELIABILITY, "../tests/stress/network.py#resetz")
    assert not shows(RELIABILITY, "../jccl/cli/__init__.py#main")
    assert not shows(RELIABILITY, "settings.md#environment")


@pytest.fixture(scope="module")
def every_name():
    """Of C++ and Python tests, stress cases and scenarios."""
    found = {path.stem for path in (ROOT / "cpp/protocol/scenarios").glob("*.txt")}
    for folder, pattern in (("cpp", "*_test.cc"), ("tests", "*.py"), ("xla_ext", "*")):
        for path in (ROOT / folder).rglob(pattern):
            if path.suffix in NAMED_IN:
                found |= set(NAMED_IN[path.suffix].findall(path.read_text()))
    return found | OTHER_NAMES


BUG_ROWS = [pytest.param(row, id=row[0][:40]) for row in rows(RELIABILITY, BUGS)]


@pytest.mark.parametrize("row", BUG_ROWS)
def test_a_bug_is_kept_as_a_test_that_exists(row, every_name):
    named = re.findall(r"`([^`]+)`", row[-1])
    for one in named:
        begun = one.removesuffix("…")
        known = one in every_name or FAILPOINT_CASE.fullmatch(one)
        assert known or (begun != one and any(n.startswith(begun) for n in every_name))
    assert named or LINK.findall(row[-1]) or row[-1] in every_name, row


NINE = r"\| bug, once real \|.*\n\| -.*\n((?:\|.*\n)+)"


def test_each_bug_of_the_data_path_is_planted_and_seen_by_what_the_table_says():
    table = re.search(NINE, RELIABILITY.read_text())[1].splitlines()
    bugs = {bug.name: bug for bug in registry.read()}
    assert len(table) == 9
    for row in table:
        _, planted, seen = (cell.strip() for cell in row.strip("| ").split(" | "))
        bug = bugs[planted.strip("`")]
        by_seed = "seed" in (bug.test, bug.system)
        assert (seen == "seeds") == by_seed, row
        assert by_seed or bug.test.split()[-1] == re.match("`(.+?)`", seen)[1], row


def test_the_text_of_failpoints_says_how_many_there_are():
    names = re.findall(
        r'X\(\w+, "(\w+)\.[\w-]+"\)', (ROOT / "cpp/base/failpoint.h").read_text()
    )
    text = RELIABILITY.read_text()
    assert f"the {names.count('peer')} named points of a peer" in text
    assert f"its {names.count('master')} named points" in text
    assert f"each of {len(names)}\nnamed moments" in README.read_text()
