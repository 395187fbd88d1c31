"""cpp/planted.txt: each planted bug by name, with the test that has to catch it."""

import dataclasses
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "cpp" / "planted.txt"
SEEDS = ROOT / "cpp" / "sim" / "mutants.txt"
NONE = "-"  # not looked for
NOTHING = "none"  # of system tests: those of its stratum have run and saw nothing
HEAD = """\
# Planted bugs (base/planted.h): name | stratum | its test | a system test that sees it
# too | mistake. A test is a program and a filter of its tests; `seed` is the simulator
# with the bug's seed of sim/mutants.txt. Rows without a test: python -m tests.planted
# --fill, and --system for the fourth column: `none` of those tests sees it, `-` is not
# looked for.
"""


@dataclasses.dataclass
class Bug:
    name: str
    stratum: str
    test: str
    system: str
    mistake: str

    def line(self):
        return " | ".join(dataclasses.astuple(self))


def read(path=FILE):
    rows = [
        line
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    return [Bug(*(part.strip() for part in row.split(" | ", 4))) for row in rows]


def write(bugs, path=FILE):
    path.write_text(HEAD + "".join(bug.line() + "\n" for bug in bugs))


def note(name, column, test):
    """In the file as it is now: others may have written rows meanwhile."""
    rows = read()
    for row in rows:
        if row.name == name:
            setattr(row, column, test)
    write(rows)


def seeds():
    """The seed that shows each bug of the simulator."""
    rows = [line.split() for line in SEEDS.read_text().splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[0] != "#"}
