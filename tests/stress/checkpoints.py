"""Kills a process at every named moment of saving and restoring, and at random times.

    python -m tests.stress.checkpoints                 # in CI: 300 kills
    python -m tests.stress.checkpoints --kills 10000   # make long-checkpoints

Each life goes on where the one before it was killed: it restores the newest checkpoint,
compares every bit with what that number has to be, and saves the next ones until it is
killed. Wrong is: an older one than the last of which `wait` said that it is there;
other bits; one that is complete and damaged. A life is a fork of a process that has
imported everything and runs nothing, so that no kill pays for importing JAX.
"""

import argparse
import itertools
import json
import logging
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from jccl.checkpoint import moments, reading, records, stores
from jccl.errors import DamagedError
from tests.paper_run import Site

SAVES_MAX = 8  # of one life: a moment that was not reached by then is a fault
RANDOM_S = 0.3  # at most, from a fork, a restore or the begin of a save to a kill
SINCE = (b"", b"restored", b"begun")
PATIENCE_S = 60.0


class Lines(logging.Handler):
    """A checkpoint that is there and damaged is refused in a line."""

    def __init__(self, report):
        super().__init__()
        self.report = report

    def emit(self, record):
        text = record.getMessage()
        if "refused" in text and records.INCOMPLETE not in text:
            self.report(f"wrong {text}")


def live(folder, goal, report):
    """Of a forked process: until it is killed. `goal`: (moment, count), or None."""
    log = logging.getLogger("jccl")
    log.addHandler(Lines(report))
    log.propagate = False
    left = itertools.count(1)

    def hook(moment):
        if goal and moment == goal[0] and next(left) == goal[1]:
            report(f"killed {moment}")
            os.kill(os.getpid(), signal.SIGKILL)

    moments.hook = hook
    site = Site(folder, keep=2)
    number = site.restore()
    report(f"restored {number}")
    for _ in range(SAVES_MAX):
        number += 1
        report(f"begun {number}")
        site.save(number)
        report(f"there {number}")
    report("ended")


def fork(folder, goal):
    """(process id, the end of the pipe on which it reports)."""
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        os.close(out)
        code = 1
        try:
            live(folder, goal, lambda text: os.write(into, text.encode() + b"\n"))
            code = 0
        except BaseException as fault:
            os.write(into, f"wrong {fault!r}".replace("\n", " ")[:3000].encode())
        os._exit(code)
    os.close(into)
    return child, out


def heard(out, seconds, word=None):
    """What it reports until it has ended, or has said the word, or for so long; and
    whether it has ended."""
    end, text = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0 and (word is None or word not in text):
        if select.select([out], [], [], left)[0]:
            if not (more := os.read(out, 1 << 16)):
                return text, True
            text += more
    return text, False


class Story:
    """One folder and its lives, one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.there = self.begun = 0
        self.counts = Counter()
        self.problems = []

    def begin(self):
        """A life that nobody kills."""
        child, out = fork(self.folder, None)
        text, _ = heard(out, PATIENCE_S)
        os.close(out)
        os.waitpid(child, 0)
        self.judge(None, text.decode())
        self.counts.clear()

    def life(self, goal, rng):
        child, out = fork(self.folder, goal)
        text, ended = heard(out, PATIENCE_S, None if goal else rng.choice(SINCE))
        if not goal and not ended:
            more, ended = heard(out, rng.uniform(0.0, RANDOM_S))
            text += more
        if not ended:
            os.kill(child, signal.SIGKILL)
            text += heard(out, PATIENCE_S)[0]
            if goal:
                self.problems.append(f"{goal}: not over after {PATIENCE_S} s")
        os.close(out)
        _, status = os.waitpid(child, 0)
        self.counts["kills"] += os.WIFSIGNALED(status)
        self.judge(goal, text.decode())

    def judge(self, goal, text):
        reached = False
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "restored":
                self.counts["restored"] += 1
                if not self.there <= int(rest) <= self.begun:
                    self.problems.append(
                        f"{goal}: restored {rest}, {self.there} was there and "
                        f"{self.begun} begun"
                    )
                self.there = int(rest)
            elif word == "begun":
                self.begun = int(rest)
            elif word == "there":
                self.there = int(rest)
                self.counts["saved"] += 1
            elif word == "killed":
                reached = True
                self.counts[f"at {rest}"] += 1
            elif word == "wrong":
                self.problems.append(f"{goal}: {rest}")
        if goal and not reached:
            self.problems.append(f"{goal} was not reached: {text[-300:]}")

    def verify(self):
        store = stores.open_store(self.folder)
        whole = [one.record for one in records.find(store) if one.record]
        for record in whole:
            try:
                reading.verify(store, record)
            except DamagedError as fault:
                self.problems.append(f"{record}: {fault}")
        if not whole or whole[-1].number < self.there:
            self.problems.append(f"the last is {whole[-1:]}, {self.there} was there")


def goals(kills, rng):
    """Half of them at moments, each as often, the first or a later time."""
    named = itertools.cycle(moments.MOMENTS)
    some = [(next(named), rng.choice([1, 1, 2, 3])) for _ in range(kills // 2)]
    some += [None] * (kills - len(some))
    rng.shuffle(some)
    most = {"restore-begun": 1, "restore-ended": 1, "restore-item-read": 2}  # of a life
    return [(g[0], min(g[1], most.get(g[0], 3))) if g else None for g in some]


def tell(folder, seed, kills):
    """One story, to its end or its first problem."""
    rng = random.Random(seed)
    story = Story(str(folder))
    story.begin()
    for goal in goals(kills, rng):
        if story.problems:
            break
        story.life(goal, rng)
    story.verify()
    return {"counts": story.counts, "problems": story.problems, "seed": seed}


def side_by_side(args, home):
    """Stories in forks of this process, which itself runs nothing."""
    children = []
    for lane in range(args.jobs):
        kills = args.kills // args.jobs + (lane < args.kills % args.jobs)
        if (child := os.fork()) == 0:
            code = 1
            try:
                told = tell(home / f"{lane}", args.seed + lane, kills)
                (home / f"{lane}.json").write_text(json.dumps(told))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise SystemExit(f"stories ended with {codes}")
    return [json.loads(path.read_text()) for path in sorted(home.glob("*.json"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2, help="stories side by side")
    parser.add_argument("--seed", type=int, default=random.getrandbits(31))
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="jccl-checkpoints-"))
    begun = time.monotonic()
    stories = side_by_side(args, home)
    counts = Counter()
    for story in stories:
        counts += Counter(story["counts"])
        for problem in story["problems"]:
            print(f"WRONG (--seed {story['seed']} --jobs 1): {problem}")
    at = {moment: counts[f"at {moment}"] for moment in moments.MOMENTS}
    missed = [moment for moment, count in at.items() if not count]
    print(
        f"{counts['kills']} kills, {sum(at.values())} of them at "
        f"{len(at) - len(missed)} moments, {counts['restored']} "
        f"times restored, {counts['saved']} checkpoints, "
        f"{sum(len(story['problems']) for story in stories)} wrong, "
        f"{time.monotonic() - begun:.0f} s"
    )
    if missed or any(story["problems"] for story in stories):
        raise SystemExit(f"not reached: {missed}; folders: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
