"""cpp/planted.txt: each planted bug by name, with the test that has to catch it."""

import dataclasses
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "cpp" / "planted.txt"
SEEDS = ROOT / "cpp" / "sim" / "mutants.txt"
NONE = "-"
HEAD = """\
# Planted bugs (base/planted.h): name | stratum | its test | a system test that sees it
# too | mistake. A test is a program and a filter of its tests; `seed` is the simulator
# with the bug's seed of sim/mutants.txt, `pytest` a test of the package with an
# extension that has the bugs. Rows without a test: python -m tests.planted --fill
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


def seeds():
    """The seed that shows each bug of the simulator."""
    rows = [line.split() for line in SEEDS.read_text().splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[0] != "#"}
