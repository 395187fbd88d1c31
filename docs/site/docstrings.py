"""Docstrings of the package as reStructuredText, for autodoc.

They are written to be read by `help()`: sections as Google writes them, code between
single backquotes, lists without a blank line before them.
"""

from __future__ import annotations

import re
import textwrap

SECTION = re.compile(
    r"(Args|Attributes|Returns|Raises|Errors|Warns|Cost|Source|Examples?):( .*)?$"
)
ENTRY = re.compile(r"([\w*]+(?:, [\w*]+)*): (.*)")
CODE = re.compile(r"(`[^`]+`)")
BULLET = re.compile(r"[*-] ")


def as_rst(lines: list[str]) -> list[str]:
    """The docstring's lines; sections become bold words with what they say below."""
    out: list[str] = []
    name, body = "", []
    for line in [*lines, None]:
        found = None if line is None else SECTION.match(line)
        ends = name and line and not line.startswith(" ")
        if line is None or found or ends:
            out += _section(name, body)
            name, body = (found.group(1), []) if found else ("", [])
            line = (found.group(2) or "").strip() if found else line
        if line is not None:
            body.append(line)
    return out


def _section(name: str, body: list[str]) -> list[str]:
    first, rest = body[:1], textwrap.dedent("\n".join(body[1:])).split("\n")
    text = [*first, *rest] if name else body
    while text and not text[0].strip():
        text = text[1:]
    if name.startswith("Example"):
        text = ["::", "", *(f"    {line}" for line in text)]
    elif name in ("Args", "Attributes"):
        text = _entries(text)
    else:
        text = _prose(text)
    return [*([f"**{name}**", ""] if name else []), *text, ""]


def _entries(lines: list[str]) -> list[str]:
    out: list[str] = []
    entry: list[str] = []

    def close() -> None:
        if not entry:
            return
        head, rest = entry[0], textwrap.dedent("\n".join(entry[1:])).split("\n")
        found = ENTRY.match(head)
        body = _prose([found.group(2) if found else head, *rest])
        term = f"``{found.group(1)}``: " if found else ""
        below = [f"  {line}".rstrip() for line in body[1:]]
        out.extend([f"* {term}{body[0]}", *below, ""])

    for line in lines:
        if line and not line.startswith(" "):
            close()
            entry = [line]
        elif entry:
            entry.append(line)
    close()
    return out


def _prose(lines: list[str]) -> list[str]:
    out: list[str] = []
    in_list = literal = False
    for line in lines:
        stripped = line.strip()
        indented = line.startswith("    ")
        bullet = BULLET.match(stripped)
        if stripped and (indented and not in_list and not bullet) != literal:
            literal = not literal
            out += ["", "::", ""] if literal else [""]
        if literal and stripped:
            out.append(line)
            continue
        ends = in_list and stripped and not bullet and not line.startswith(" ")
        if (bullet and not in_list) or ends:
            out.append("")
        in_list = bool(bullet) or (in_list and (not stripped or line.startswith(" ")))
        if bullet:
            out.append(bullet.group(0) + _escaped(stripped[bullet.end() :]))
        elif in_list and stripped:
            out.append("  " + _escaped(stripped))
        else:
            out.append(_escaped(stripped))
    return out


def _escaped(text: str) -> str:
    text = re.sub(r"^(\d+)\.", r"\1\\.", text)  # a sentence, not a list
    return "".join(
        part.replace("`", "``")
        if CODE.fullmatch(part)
        else re.sub(r"([*|]|_(?!\w))", r"\\\1", part)
        for part in CODE.split(text)
    )
