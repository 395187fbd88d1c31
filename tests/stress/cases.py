"""Named cases, each a cluster of its own; many side by side, for most is waiting."""

import argparse
import json
import shutil
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.stress.cluster import StressError


class World:
    """What a case acts on: a cluster, stopped and judged when the case ends."""

    def __init__(self, cluster):
        self.cluster, self.times = cluster, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cluster.stop()
        self.cluster.judged()

    def counts(self):
        return self.cluster.judge.counts + self.cluster.faults

    def history(self, kind):
        path = self.cluster.folder / "history.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]

    def evictions(self):
        return Counter(line["site"] for line in self.history("evict"))

    def must(self, holds, what):
        if not holds:
            self.cluster.judge.problems.append(f"{what}: {self.history('evict')}")


def parser(doc, jobs):
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    options.add_argument("--only", default="", help="cases whose name contains this")
    options.add_argument("--programs", help="folder of the programs, else the build's")
    options.add_argument("--jobs", type=int, default=jobs, help="clusters side by side")
    return options


def play(make, act, folder):
    world = make(folder)
    problems = world.cluster.judge.problems
    try:
        with world:
            act(world)
    except StressError as fault:
        problems.append(str(fault))
    except Exception:
        problems.append(traceback.format_exc())
    return problems, world


def run(title, cases, args, also):
    """`cases`: by name, what makes a World in a folder and what acts on it. `also`: a
    count that the last line names, and its words. SystemExit if anything is wrong."""
    names = [name for name in cases if args.only in name]
    if not names:
        raise SystemExit(f"no case has '{args.only}' in its name: {', '.join(cases)}")
    home = Path(tempfile.mkdtemp(prefix=f"jccl-{title}-"))
    begun, wrong, counts = time.monotonic(), 0, Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        played = pool.map(lambda name: play(*cases[name], home / name), names)
        for name, (problems, world) in zip(names, played, strict=True):
            counts += world.counts()
            times = ", ".join(f"{what}: {t:.2f}" for what, t in world.times.items())
            print(f"{name}: {times or 'ok'}", flush=True)
            for problem in problems[:3]:
                print(f"WRONG: {name}: {problem}", flush=True)
            wrong += len(problems)
            if not problems:
                shutil.rmtree(home / name)
    counted, words = also
    print(
        f"{len(names)} cases, {counts[counted]} {words}, "
        f"{counts['call Ok']} results compared, "
        f"{counts['results that needed a retry']} of them retried, "
        f"{wrong} wrong, {time.monotonic() - begun:.0f} s"
    )
    if wrong:
        raise SystemExit(f"logs: {home}")
    shutil.rmtree(home)
