"""Builds the site: python docs/site/build.py [FOLDER, build/site unless said].

A warning fails it: a link that leads nowhere, a page in no section, a docstring that
Sphinx cannot read.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import stage  # noqa: E402


def main(out: Path) -> int:
    """Sphinx's exit code; the pages are in `out`, of which nothing else stays."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="jccl-site-") as folder:
        sources = Path(folder) / "sources"
        stage.stage(sources)
        options = ["--quiet", "--fail-on-warning", "--keep-going"]
        cache = str(Path(folder) / "cache")
        return build_main(
            [*options, "-c", str(HERE), "-d", cache, str(sources), str(out)]
        )


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else stage.ROOT / "build" / "site"
    sys.exit(main(Path(target)))
