"""cpp/planted.txt names the planted bugs of the sources, and the test of each."""

import re
from collections import Counter

from tests.planted import registry
from tests.tidy import strata

SITE = re.compile(r'JCCL_PLANTED\(\s*"([^"]+)"\s*\)')
STRATA = set(strata.CPP) | {"xla_ext"}


def sites():
    """Where each bug is planted: names of bugs, and the strata they are in."""
    found = {}
    folders = [registry.ROOT / "cpp" / name for name in strata.CPP]
    for folder in [*folders, registry.ROOT / "xla_ext"]:
        for path in sorted(folder.rglob("*")):
            if path.suffix not in {".h", ".cc"} or path.name == "planted.h":
                continue
            for name in SITE.findall(path.read_text()):
                found.setdefault(name, set()).add(folder.name)
    return found


def test_every_planted_bug_has_its_row_and_every_row_its_bug():
    rows = {bug.name: bug.stratum for bug in registry.read()}
    planted = sites()
    assert sorted(set(planted) - set(rows)) == []
    assert sorted(set(rows) - set(planted)) == []
    assert {name: s for name, s in rows.items() if planted[name] != {s}} == {}


def test_names_are_given_once_and_each_row_says_what_is_wrong():
    bugs = registry.read()
    assert [name for name, n in Counter(b.name for b in bugs).items() if n > 1] == []
    assert [
        b.name for b in bugs if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", b.name)
    ] == []
    assert [
        b.name for b in bugs if b.stratum not in STRATA or len(b.mistake) < 20
    ] == []


def test_every_planted_bug_has_a_test():
    assert [bug.name for bug in registry.read() if bug.test == registry.NONE] == []


def test_the_simulator_chooses_from_its_own_rows():
    source = (registry.ROOT / "cpp/sim/mutants.cc").read_text()
    listed = re.findall(r'^    \{"([^"]+)"\},$', source, re.M)
    rows = [b.name for b in registry.read() if "seed" in (b.test, b.system)]
    assert sorted(listed) == sorted(rows)


TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def test_the_test_of_each_planted_bug_is_there():
    """A row whose test was renamed says nothing, and only a run of all would tell."""
    roots = [registry.ROOT / "cpp", registry.ROOT / "xla_ext"]
    there = {
        f"{suite}.{name}"
        for root in roots
        for path in root.rglob("*_test.cc")
        for suite, name in TEST.findall(path.read_text())
    }
    named = re.compile(r"(?:\w+/)?([A-Z]\w+)\.(\w+)(?:/.*)?")
    lost = [
        f"{bug.name}: {test}"
        for bug in registry.read()
        for test in [*bug.test.split()[1:], *bug.system.split()[1:]]
        if (words := named.fullmatch(test)) and ".".join(words.groups()) not in there
    ]
    assert lost == []
