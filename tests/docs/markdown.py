"""The documents of the tree, as these tests read them: fences, links, headings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.S | re.M)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    path: Path
    language: str
    words: tuple[str, ...]  # after the language: "run", "file=PATH"
    text: str

    @property
    def file(self) -> Path | None:
        named = [word for word in self.words if word.startswith("file=")]
        return ROOT / named[0].removeprefix("file=") if named else None


def documents() -> list[Path]:
    """Those of git, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split()
    if listed.returncode:  # an exported tree without git
        places = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("cpp/*/*.md"))
        return sorted(places)
    return sorted(ROOT / name for name in names if (ROOT / name).exists())


def blocks(path: Path) -> list[Block]:
    found = []
    for info, text in FENCE.findall(path.read_text()):
        language, *words = info.split() or [""]
        found.append(Block(path, language, tuple(words), text))
    return found


def prose(path: Path) -> str:
    """Without fenced blocks."""
    return FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.M)
    return {slug(heading) for heading in headings}


NAMED_IN = {
    ".py": re.compile(r"^\s*(?:def|class) (\w+)", re.M),
    ".cc": re.compile(r"^TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)", re.M),
}


def targets(path: Path) -> set[str]:
    """What a link may name in a file: headings, functions and classes, or tests."""
    named = NAMED_IN.get(path.suffix)
    return set(named.findall(path.read_text())) if named else anchors(path)


def slug(heading: str) -> str:
    bare = re.sub(r"[`*]", "", LINK.sub("", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", bare).replace(" ", "-")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
