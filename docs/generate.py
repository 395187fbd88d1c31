"""Writes what repeats the code: tables and pictures of docs/, the stub of the package.

    python docs/generate.py            # rewrite
    python docs/generate.py --check    # exit code 1 if something is out of date

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from docs import dependencies, strip, stub, timelines  # noqa: E402
from tests.planted import registry  # noqa: E402
from tests.tidy import strata  # noqa: E402

BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)

HOLDS = {
    "base": "status and result, bytes, ids, limits, checks, CRC32C, SHA-256, Merkle "
    "trees, seeded random",
    "codec": "16, 8 and 4 bits, top-k; kernels per instruction set; the guard",
    "wire": "control messages, journal records, frame headers",
    "protocol": "master machine, round machine, peer machine, recorder, scenarios",
    "collective": "plans, layout, the planner, reduction kernels",
    "snapshot": "digest, manifest, who fetches what from whom",
    "exchange": "attempts, frames and their flight, dialling, survey of links",
    "proof": "TOPLOC proofs: the largest values of a chunk as a polynomial",
    "net": "loop, addresses, TLS, links of stripes, listener: bytes, never messages",
    "page": "the page over HTTP, Prometheus' text, what has happened",
    "master": "driver of the master machine, journal, status, `jccl-master`",
    "peer": "communicator: driver of the peer machine, data thread, snapshots",
    "capi": "the C API over communicator and master",
    "sim": "simulated world around the real machines, with oracles",
    "attack": "a member that lies, and honest ones beside it, as processes",
    "fuzz": "fuzz targets for every parser and both machines, and their replay",
    "xla_ext": "XLA FFI handlers for CPU and CUDA, registry, pybind11 module",
}

ROOMS = {
    "codec/kernels": "loops of each codec, per instruction set",
    "collective/kernels": "sums, ranks and robust means, per instruction set",
    "protocol/master": "the master's machine: its frame, its rooms' base, the ledger",
    "protocol/members": "who is here: processes, members, seats",
    "protocol/conduct": "what is held against whom: blame, lost time, links, orders",
    "protocol/rounds": "a round from its first READY to its outcome",
    "protocol/states": "states: birth, synchronisation, votes, going back",
    "protocol/peer": "the peer's machine",
    "protocol/recorder": "the flight recorder, its file, and how it replays",
    "exchange/attempt": "one attempt's chunks",
    "net/socket": "loop, addresses, listening, dialling",
    "net/security": "keys, tokens, introduction, TLS, sealed records",
    "net/link": "frames on links of stripes",
    "master/driver": "the loop around the machine",
    "master/etcd": "the journal and the lease in etcd",
    "peer/links": "links to the others, and who may open one",
    "peer/snapshots": "serving and fetching states",
    "sim/network": "simulated links, plans, stores and snapshots",
    "sim/oracles": "one file per promise",
    "sim/liars": "members that lie",
    "fuzz/fields": "the table of fields, and who may send each",
    "fuzz/hostile": "one hostile member in a run",
    "fuzz/targets": "one per parser and machine",
    "xla_ext/handlers": "what XLA calls, on the host and on CUDA",
    "xla_ext/cuda": "streams, staging, devices that meet",
    "xla_ext/module": "the Python binding",
    "xla_ext/testing": "a library that stands in for the CUDA driver",
}

CODE = re.compile(r"X\((\w+), (\d+), (\w+)\)\s*/\* (.*?) \*/")
LIMIT = re.compile(r"constexpr [\w:]+ (k\w+Max) = ([^;]+);(?:\s*// (.*))?")


# ---- what the code says --------------------------------------------------------------


def codes() -> list[tuple[str, int, str, str]]:
    """(name, number, remedy, meaning) of base/codes.h."""
    text = (ROOT / "cpp/base/codes.h").read_text()
    found = re.findall(CODE, text)
    if len(found) != text.count("  X("):
        raise SystemExit("base/codes.h has rows that this script does not read")
    return [(name, int(number), remedy, why) for name, number, remedy, why in found]


def commands() -> dict[str, object]:
    """The click commands by name."""
    import click

    from jccl.cli import group

    context = click.Context(group)
    found = {
        name: group.get_command(context, name) for name in group.list_commands(context)
    }
    for name, command in list(found.items()):
        for inner, one in getattr(command, "commands", {}).items():
            found[f"{name}-{inner}"] = one
    return found


def master_help() -> str:
    text = (ROOT / "cpp/master/main.cc").read_text()
    return re.search(r'R"\((.*?)\)"', text, re.S)[1].strip()  # type: ignore[index]


# ---- tables --------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def codes_table() -> str:
    from jccl.errors import ERROR, Code

    rows = []
    for name, number, remedy, why in codes():
        raised = ERROR.get(Code(number))
        rows.append(
            (
                str(number),
                f"`{upper(name)}`",
                why,
                remedy.lower(),
                f"`{raised.__name__}`" if raised else "–",
            )
        )
    return table(("number", "code", "meaning", "remedy", "Python"), rows)


def remedies_table() -> str:
    from jccl.errors import NEXT, Remedy

    return table(
        ("remedy", "what to do"), [(remedy.value, NEXT[remedy]) for remedy in Remedy]
    )


def limits_table() -> str:
    text = (ROOT / "cpp/base/limits.h").read_text()
    rows = []
    for name, value, note in re.findall(LIMIT, text):
        words = re.findall(r"[A-Z]+[a-z0-9]*", name.removesuffix("Max"))
        shown = re.sub(r"std::uint64_t\{1\} << (\d+)", r"2^\1", value)
        shown = re.sub(r"std::size_t\{(\d+)\} << 20", r"\1 MiB", shown)
        shown = shown.replace("kSecond", "s").replace(" * s", " s").replace("*", "×")
        rows.append((" ".join(words).lower(), shown, note))
    return table(("limit", "at most", ""), rows)


def cli_table(name: str) -> str:
    import click

    command = commands()[name]
    rows = []
    for option in command.params:  # type: ignore[attr-defined]
        if not isinstance(option, click.Option):
            continue
        spelt = ", ".join(f"`{spelling}`" for spelling in option.opts)
        default = option.default
        given = not option.is_flag and not callable(default)
        shown = (
            f"`{default}`" if given and isinstance(default, str | int | float) else ""
        )
        rows.append((spelt, shown if default else "", option.help or ""))
    return table(("option", "default", ""), rows)


def master_block() -> str:
    return f"```text\n{master_help()}\n```\n"


def strata_rows() -> list[tuple[str, bool, set[str]]]:
    rows = [(name, name in strata.PURE, set(uses)) for name, uses in strata.CPP.items()]
    return [*rows, ("xla_ext", False, strata.XLA_EXT - {"xla"})]


def strata_table() -> str:
    rows = []
    for name, pure, uses in strata_rows():
        folder = f"`{name}/`" if name == "xla_ext" else f"`cpp/{name}/`"
        others = " ".join(sorted(uses)).replace("jccl", "`jccl.h`") or "–"
        if name == "xla_ext":
            others += ", XLA's FFI headers"
        rows.append((folder, "pure" if pure else "", others, HOLDS[name]))
    return table(("folder", "", "may include", "holds"), rows)


def python_table() -> str:
    rows = [
        (str(level + 1), " ".join(f"`{name}`" for name in names))
        for level, names in enumerate(strata.PYTHON)
    ]
    return table(("level", "modules of `jccl/`: each imports only lower levels"), rows)


def rooms_table() -> str:
    rows = [
        (f"`{f if f.startswith('xla') else 'cpp/' + f}/`", t) for f, t in ROOMS.items()
    ]
    return table(("subfolder", "holds"), rows)


def planted_table() -> str:
    bugs = registry.read()
    rows = []
    for folder in [*HOLDS, ""]:
        of = [bug for bug in bugs if folder in ("", bug.stratum)]
        if of:
            open_, none = (
                sum(bug.system == word for bug in of)
                for word in (registry.NONE, registry.NOTHING)
            )
            counts = (len(of), len(of) - none - open_, none, open_)
            rows.append((f"`{folder}`" if folder else "all", *map(str, counts)))
    head = ("planted bugs", "a system test sees it", "none does", "not looked for")
    return table(("stratum", *head), rows)


# What: the pattern of its names. Files by hand, so neither tests nor what is made.
EXAMPLES = {
    "A codec, int2": r"\bint2\b|\bInt2\b|\bkInt2\b|_INT2\b",
    "A collective, all_to_all": r"\b(?:jccl_)?all_to_all\b|\bkAllToAll\b|_ALL_TO_ALL\b",
    "A control message, Notice": r"\bNotice\b",
}
MADE = {"jccl/__init__.pyi", "cpp/wire/FIELDS.md", "cpp/planted.txt"}
NO_EXAMPLE = re.compile(r"_test\.|/scenarios/|/scripts/|DECISIONS\.md|__pycache__")


def examples() -> str:
    """The files that name each, by folder."""
    lines = []
    for what, pattern in EXAMPLES.items():
        found: dict[str, list[str]] = {}
        for top in ("cpp", "xla_ext", "jccl"):
            for path in sorted((ROOT / top).rglob("*")):
                name = path.relative_to(ROOT)
                kinds = (".h", ".cc", ".c", ".py", ".pyi", ".md", ".txt")
                skipped = str(name) in MADE or NO_EXAMPLE.search(str(name))
                if path.suffix not in kinds or skipped:
                    continue
                if re.search(pattern, path.read_text()):
                    found.setdefault(str(name.parent), []).append(name.name)
        count = sum(map(len, found.values()))
        lines.append(f"* **{what}** ({count} files).")
        lines += [f"  `{f}/`: {', '.join(names)}." for f, names in found.items()]
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "codes": codes_table,
    "remedies": remedies_table,
    "limits": limits_table,
    "jccl-master": master_block,
    "strata": strata_table,
    "rooms": rooms_table,
    "dependencies-python": lambda: table(
        ("package", "locked at", "licence", "when", "for"), dependencies.python_rows()
    ),
    "dependencies-tools": lambda: table(
        ("package", "locked at", "licence", "of", "for"), dependencies.tool_rows()
    ),
    "dependencies-system": lambda: table(
        ("package", "tested with", "licence", "when", "for"), dependencies.system_rows()
    ),
    "python": python_table,
    "examples": examples,
    "planted": planted_table,
}


def block(name: str) -> str:
    if name.startswith("cli-"):
        return cli_table(name.removeprefix("cli-"))
    return BLOCKS[name]()


# ---- the picture of the strata -------------------------------------------------------

ROWS = [
    ["xla_ext", "capi", "attack", "fuzz"],
    ["master", "peer", "sim"],
    ["page", ""],
    ["net", "protocol"],
    ["exchange", ""],
    ["collective", "snapshot"],
    ["codec", "wire", "proof"],
    ["base"],
]
BOX_W, BOX_H, GAP_X, GAP_Y, LEFT, TOP = 150, 44, 30, 46, 24, 44
STYLE = """<style>
  text { font: 14px sans-serif; fill: #1f2933; text-anchor: middle }
  .note { font-size: 12px; fill: #52606d; text-anchor: start }
  .pure { fill: #d9f2e3; stroke: #2f855a }
  .driver { fill: #e3ecfa; stroke: #2b6cb0 }
  line { stroke: #9aa5b1; stroke-width: 1.2; marker-end: url(#tip) }
  path.tip { fill: #9aa5b1 }
</style>"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/>'
    "</marker></defs>"
)


def places() -> dict[str, tuple[float, float]]:
    """Centre of each box; a row that is shorter than the longest is centred."""
    longest = max(len(row) for row in ROWS)
    found = {}
    for y, row in enumerate(ROWS):
        indent = (longest - len(row)) * (BOX_W + GAP_X) / 2
        for x, name in enumerate(row):
            if not name:
                continue  # an empty place
            found[name] = (
                LEFT + indent + x * (BOX_W + GAP_X) + BOX_W / 2,
                TOP + y * (BOX_H + GAP_Y) + BOX_H / 2,
            )
    return found


def direct_uses() -> dict[str, set[str]]:
    """Without the edges that follow from others, so that the picture can be read."""
    uses = {name: others & set(HOLDS) for name, _, others in strata_rows()}

    def reach(name: str) -> set[str]:
        return uses[name].union(*(reach(other) for other in uses[name]), set())

    return {
        name: others - set().union(*(reach(other) for other in others))
        for name, others in uses.items()
    }


def strata_svg() -> str:
    at, uses = places(), direct_uses()
    height = TOP + len(ROWS) * (BOX_H + GAP_Y)
    width = 2 * LEFT + max(len(row) for row in ROWS) * (BOX_W + GAP_X) - GAP_X
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        STYLE,
        TIP,
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="note" x="{LEFT}" y="24">An arrow points to what a folder may '
        "include; what follows from other arrows is left out. Green folders are "
        "pure.</text>",
    ]
    for name, others in sorted(uses.items()):
        for other in sorted(others):
            (x1, y1), (x2, y2) = at[name], at[other]
            # Off the middle, so that arrows from both sides stay apart.
            shift = max(-1.0, min(1.0, (x2 - x1) / BOX_W)) * BOX_W / 4
            lines.append(
                f'<line x1="{x1 + shift:.0f}" y1="{y1 + BOX_H / 2:.0f}" '
                f'x2="{x2 - shift:.0f}" y2="{y2 - BOX_H / 2:.0f}"/>'
            )
    for name, (x, y) in sorted(at.items()):
        kind = "pure" if name in strata.PURE else "driver"
        lines.append(
            f'<rect class="{kind}" x="{x - BOX_W / 2:.0f}" y="{y - BOX_H / 2:.0f}" '
            f'width="{BOX_W}" height="{BOX_H}" rx="6"/>'
        )
        lines.append(f'<text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


# ---- files ---------------------------------------------------------------------------


def rendered() -> dict[Path, str]:
    """Each file with generated parts, as it should be."""
    files = {
        DOCS / "strata.svg": strata_svg(),
        ROOT / "jccl" / "__init__.pyi": stub.text(),
        **timelines.pictures(DOCS),
        **strip.pictures(DOCS),
    }
    for path in [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]:
        text = path.read_text()
        if BLOCK.search(text):
            files[path] = BLOCK.sub(lambda m: m[1] + block(m[2]) + m[4], text)
    return files


def main() -> int:
    stale = [
        (path, text)
        for path, text in rendered().items()
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is out of date: run docs/generate.py")
        else:
            path.write_text(text)
    return int("--check" in sys.argv[1:] and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
