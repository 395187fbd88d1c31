"""scikit-build-core, plus two build requirements that are asked for only if missing.

Boost's headers come from the system, else from a wheel. XLA's FFI headers come from
the oldest jaxlib that has them, since a handler runs on that release and every newer
one; `--no-build-isolation` builds against the environment's own jaxlib instead.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    build_wheel,
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


def get_requires_for_build_wheel(config_settings=None):
    return _build.get_requires_for_build_wheel(config_settings) + _extra()


def get_requires_for_build_editable(config_settings=None):
    return _build.get_requires_for_build_editable(config_settings) + _extra()
