"""`jccl/__init__.pyi`: the public names of the package, for editors and type checkers.

Written from the list in `jccl/__init__.py`, so that a name is added in one place.
"""

from __future__ import annotations

import re

import jccl

HEAD = "# Written by docs/generate.py from the list in __init__.py.\n"


def _order(name: str) -> tuple[bool, str]:
    """As isort sorts: classes, then functions, and numbers in names as numbers."""
    return (name[0].islower(), re.sub(r"\d+", lambda m: m[0].zfill(4), name))


def text() -> str:
    modules = [f"from jccl import {name} as {name}\n" for name in jccl._MODULES]
    names = [
        f"from jccl.{home} import {name} as {name}\n"
        for home, held in sorted(jccl._NAMES.items())
        for name in sorted(held.split(), key=_order)
    ]
    return "".join([HEAD, "\n", *modules, *names, "\n__version__: str\n"])
