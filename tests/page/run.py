"""Runs that are there to be looked at."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jccl.testing import Processes, wait_until

CALLS = """
import os, time, jccl, numpy as np
with jccl.connect(deadline=600) as comm:
    while True:
        comm.all_reduce(np.ones(1_000_000, np.float32), op="mean")
        time.sleep(float(os.environ["PAUSE_S"]))
"""
SITES = {"paris": 0.2, "oslo": 0.2, "lima": 1.5, "<b onclick=alert(1)>x</b>\"'&": 0.2}


@contextmanager
def seen(sites: dict[str, float], **options: Any) -> Iterator[tuple[Processes, str]]:
    """A run of these sites, which pause for so many seconds; and where its page is."""
    options = {"http": "127.0.0.1:0", **options}
    with Processes(start_peers=max(1, len(sites)), **options) as run:
        wait_until(lambda: bool(_url(run)), 60, "the page")
        for site, pause in sites.items():
            run.peer([sys.executable, "-c", CALLS], JCCL_SITE=site, PAUSE_S=str(pause))
        url = _url(run)
        wait_until(lambda: not sites or len(status(url)["rounds"]) > 2, 120, "rounds")
        yield run, url


def _url(run: Processes) -> str:
    said = run.master.output() if run.master else ""
    found = re.search(r"^page (\S+)/$", said, re.M)
    return found[1] if found else ""


def status(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/api/v1/status", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
