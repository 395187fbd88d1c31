"""scikit-build-core, plus two build requirements that are asked for only if missing.
CMake and Ninja are refused in words; ../cpp/cmake/missing.cmake lists all else.

Boost's headers come from the system, else from a wheel. XLA's FFI headers come from
the oldest jaxlib that has them, since a handler runs on that release and every newer
one; `--no-build-isolation` builds against the environment's own jaxlib instead.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

JAXLIB = "jaxlib==0.7.2"
BOOST = "cmeel-boost>=1.90,<2"
BOOST_VERSION = 109000


def _has_boost():
    try:
        importlib.metadata.distribution("cmeel-boost")
        return True
    except importlib.metadata.PackageNotFoundError:
        pass
    for folder in ("/usr/include", "/usr/local/include"):
        header = pathlib.Path(folder, "boost", "version.hpp")
        text = header.read_text() if header.exists() else ""
        found = re.search(r"#define BOOST_VERSION (\d+)", text)
        if found and int(found[1]) >= BOOST_VERSION:
            return True
    return False


def _extra():
    extra = [] if _has_boost() else [BOOST]
    if not os.environ.get("XLA_FFI_INCLUDE_DIR") and not importlib.util.find_spec(
        "jaxlib"
    ):
        extra.append(JAXLIB)
    return extra


MISSING = """jccl cannot be built here. This is missing:
  * {}
Leave out --no-build-isolation, and pip brings both. Or install them, and build again:
  pip install cmake ninja
  Debian, Ubuntu:  apt-get install cmake ninja-build
  Fedora, RHEL:    dnf install cmake ninja-build
  Homebrew:        brew install cmake ninja"""


def _require_tools():
    """Ends the build in words. An isolated one has what `get_requires` asked for."""
    tools = {"CMake 3.24 or newer": "cmake", "Ninja, or make": "ninja"}
    others = {"ninja": ("ninja-build", "make")}
    missing = [
        what
        for what, name in tools.items()
        if not any(map(shutil.which, (name, *others.get(name, ()))))
        and not importlib.util.find_spec(name)
    ]
    if missing:
        raise SystemExit(MISSING.format("\n  * ".join(missing)))


# How far it is, where pip shows what a build prints (`pip install -v`).
os.environ.setdefault("NINJA_STATUS", "jccl: %f of %t compiled, %e s: ")


def build_wheel(folder, config_settings=None, metadata_directory=None):
    _require_tools()
    return _build.build_wheel(folder, config_settings, metadata_directory)


def build_editable(folder, config_settings=None, metadata_directory=None):
    _require_tools()
    return _build.build_editable(folder, config_settings, metadata_directory)


def get_requires_for_build_wheel(config_settings=None):
    return _build.get_requires_for_build_wheel(config_settings) + _extra()


def get_requires_for_build_editable(config_settings=None):
    return _build.get_requires_for_build_editable(config_settings) + _extra()
