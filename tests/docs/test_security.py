"""SECURITY.md: every statement names its test, or says that it has none."""

import re

import pytest

from tests.docs.markdown import ROOT

PAGE = ROOT / "SECURITY.md"
NAMED = re.compile(r"\[(\w+)\]\(([\w./-]+)\)")
SECTIONS = (
    "Who may talk to a run",
    "Tokens",
    "Where secrets are",
    "Who is who",
    "Strangers",
    "Holders of a token that are no members",
    "Members that lie",
    "Quotas",
    "Broken machines and careless users",
    "Supply and build",
)


def rows():
    """(section, statement, tests) of all tables."""
    section, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        if not line.startswith("| ") or line.rstrip("| ").endswith(" tests"):
            continue
        *said, tests = (cell.strip() for cell in line.strip("|").split(" | "))
        found.append((section, " ".join(said), tests))
    return found


ROWS = rows()


def test_every_kind_of_adversary_has_statements():
    assert {section for section, _, _ in ROWS} == set(SECTIONS)
    assert len(ROWS) > 40


@pytest.mark.parametrize("said, tests", [(s, t) for _, s, t in ROWS], ids=str)
def test_a_statement_names_tests_that_exist_or_says_that_it_has_none(said, tests):
    named = NAMED.findall(tests)
    if not named:
        assert tests.startswith(("**untested**", "out of scope")), said
        return
    assert not re.sub(r"[, ]", "", NAMED.sub("", tests)), f"{tests}: more than tests"
    for test, file in named:
        text = (ROOT / file).read_text()
        defined = re.search(rf"TEST(?:_F|_P)?\(\w+,\s*{test}\)|def {test}\(", text)
        assert defined, f"{file} has no test {test}: {said}"


def test_what_cannot_be_done_has_a_test():
    for section, said, tests in ROWS:
        if said.startswith("cannot"):
            assert NAMED.search(tests), f"{section}: {said}"


def test_what_has_no_test_says_what_can_happen_or_why():
    for section, said, tests in ROWS:
        if tests.startswith("**untested**"):
            assert "**can**" in said or tests != "**untested**", f"{section}: {said}"
