"""Lays out what the site is built from: the documents of this repository at their own
paths, a page for each public name of the package, and each example as a page.

Documents are read on a forge as well, so their links go to files of the repository. A
link to an example becomes one to its page here; of one to any other file, the words
stay.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
from pathlib import Path

import nav

import jccl

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
LEXERS = {".py": "python", ".c": "c", ".toml": "toml", ".sh": "sh", ".yaml": "yaml"}
PICTURES = {".svg", ".png"}
API = "docs/api"
NO_PAGE = {"cli", "__version__"}  # the command line has a page of its own


def stage(out: Path) -> None:
    """Writes the sources of the site into an empty folder."""
    examples: set[str] = set()
    readme = _rewritten((ROOT / "README.md").read_text(), "README", examples)
    _write(out / "index.md", _index(readme))
    for path in nav.PAGES:
        if path == "docs/reference":
            continue
        text = (ROOT / f"{path}.md").read_text()
        _write(out / f"{path}.md", _rewritten(text, path, examples))
    for picture in (ROOT / "docs").iterdir():
        if picture.suffix in PICTURES:
            shutil.copy(picture, out / "docs")
    for example in sorted(examples):
        lexer = LEXERS.get(Path(example).suffix, "text")
        text = (ROOT / example).read_text()
        page = f"# {example}\n\n`````{lexer}\n{text}`````\n"
        _write(out / f"{example}.md", f"---\norphan: true\n---\n{page}")
    _write(out / "docs/reference.md", _reference(out))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _rewritten(text: str, path: str, examples: set[str]) -> str:
    """The document with links that the site can follow."""
    here = os.path.dirname(path)

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        file, _, anchor = target.partition("#")
        if "://" in target or not file:
            return match.group(0)
        to = os.path.normpath(os.path.join(here, file))
        if to.endswith(".md"):
            if to == "README.md" or to.removesuffix(".md") in nav.NOT_HERE:
                return f"[{words}]({os.path.relpath('index.md', here or '.')})"
            if to.removesuffix(".md") in nav.PAGES:
                return match.group(0)
        elif Path(to).suffix in PICTURES:
            return match.group(0)
        elif to.startswith("examples/") and (ROOT / to).is_file():
            examples.add(to)
            return f"[{words}]({os.path.relpath(to + '.md', here or '.')})"
        return words

    done, last = [], 0
    for fence in FENCE.finditer(text):
        done += [LINK.sub(link, text[last : fence.start()]), fence.group(0)]
        last = fence.end()
    return "".join(done) + LINK.sub(link, text[last:])


def _reference(out: Path) -> str:
    """A page for each name, and the page that lists them."""
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Modules": []}
    errors = []
    for name in jccl.__all__:
        if name in NO_PAGE:
            continue
        what = getattr(jccl, name)
        if inspect.ismodule(what):
            group, directive = "Modules", "automodule"
        elif inspect.isclass(what) and issubclass(what, Exception):
            errors.append(name)
            continue
        elif inspect.isclass(what):
            group, directive = "Classes", "autoclass"
        else:
            group, directive = "Functions", "autofunction"
        members = "" if group == "Functions" else "\n   :members:"
        if group == "Modules":  # what has a page has it once
            members += "\n   :exclude-members: " + ", ".join(jccl.__all__)
        body = f".. {directive}:: jccl.{name}{members}"
        groups[group].append(name)
        _write(out / API / f"{name}.md", _page(f"jccl.{name}", body))
    bodies = "\n\n".join(
        f".. autoclass:: jccl.{name}\n   :show-inheritance:" for name in errors
    )
    _write(out / API / "exceptions.md", _page("Exceptions", bodies))
    lists = [
        f"## {group}\n\n"
        + "\n".join(
            f"* [`jccl.{name}`](api/{name}.md): {_first_line(getattr(jccl, name))}"
            for name in names
        )
        for group, names in groups.items()
    ]
    return "\n\n".join(
        [
            "# Python, name by name",
            *lists,
            "## Exceptions\n\n[All exceptions](api/exceptions.md), and "
            "[what to do](errors.md) when one is raised.",
        ]
    )


def _page(title: str, body: str) -> str:
    """Out of the sidebar, which would have a hundred of them on each page."""
    return f"---\norphan: true\n---\n# {title}\n\n```{{eval-rst}}\n{body}\n```\n"


def _first_line(what: object) -> str:
    return (inspect.getdoc(what) or "").split("\n\n")[0].replace("\n", " ")


def _index(readme: str) -> str:
    trees = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{chr(10).join(pages)}\n```"
        for caption, pages in nav.SECTIONS.items()
    ]
    return "\n\n".join([readme, *trees]) + "\n"
