"""As `checkpoints`, of a site of several processes: one of them is killed, and soon
after it the others, as JAX ends them.

    python -m tests.stress.site_checkpoints --kills 8     # in CI
    python -m tests.stress.site_checkpoints --kills 1000   # of make long-checkpoints

Each life of the site has another number of processes. Wrong is: processes that restore
two checkpoints; an older one than the last that all of them reported; other bits.
"""

import argparse
import json
import logging
import os
import random
import selectors
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path

from jccl.checkpoint import moments
from tests.paper_sites import Exchange, PaperTeam, Process

SAVES_MAX = 6  # of one life
PATIENCE_S = 120.0
AFTER_S = 0.3  # at most, from the first end to that of the others
RANDOM_S = 2.0


class SocketTeam(PaperTeam):
    """Whose processes are forks; the parent hands round what they say."""

    def __init__(self, processes, place, line):
        super().__init__(Exchange(processes), place)
        self._line = line

    def gather(self, numbers):
        import numpy as np

        tell(self._line, row=list(map(int, numbers)))
        return np.array(json.loads(self._line.readline()), np.uint32)


def tell(line, **message):
    line.write(json.dumps(message).encode() + b"\n")
    line.flush()


def live(folder, processes, place, goal, line):
    left = [goal[1] if goal else 0]

    def hook(moment):
        if goal and moment == goal[0]:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    moments.hook = hook
    logging.disable(logging.WARNING)  # of what was never complete
    one = Process(folder, Exchange(processes), place, keep=2)
    one.checkpoints._team = SocketTeam(processes, place, line)
    number = one.restore()
    tell(line, restored=number)
    for _ in range(SAVES_MAX):
        number += 1
        tell(line, begun=number)
        one.save(number)
        tell(line, there=number)


class Life:
    """The processes of a site from one start to their end."""

    def __init__(self, folder, processes, goal, rng):
        self.said = [Counter() for _ in range(processes)]
        self.restored = {}
        self.problems = []
        self.killed = 0
        self._rows = {}
        self._rng = rng
        self._select = selectors.DefaultSelector()
        self._children = {}
        victim = rng.randrange(processes)
        for place in range(processes):
            ours, theirs = socket.socketpair()
            its = goal if place == victim else None
            if (child := os.fork()) == 0:
                ours.close()
                code, line = 1, theirs.makefile("rwb")
                try:
                    live(folder, processes, place, its, line)
                    code = 0
                except BaseException as fault:
                    tell(line, wrong=repr(fault)[:2000])
                os._exit(code)
            theirs.close()
            line = ours.makefile("rwb")
            self._children[place] = child, line
            self._select.register(ours, selectors.EVENT_READ, (place, line, ours))
        self._end_at = time.monotonic() + (
            PATIENCE_S if goal else rng.random() * RANDOM_S
        )
        if goal is None:
            self._end_at += 3.0  # imports and the first backend

    def run(self):
        buffers = {place: b"" for place in self._children}
        while self._select.get_map():
            left = self._end_at - time.monotonic()
            if left <= 0:
                break
            for key, _ in self._select.select(left):
                place, _, ours = key.data
                data = ours.recv(1 << 16)
                if not data:
                    self._select.unregister(ours)
                    soon = time.monotonic() + self._rng.random() * AFTER_S
                    self._end_at = min(self._end_at, soon)
                    continue
                *lines, buffers[place] = (buffers[place] + data).split(b"\n")
                for line in lines:
                    self._hear(place, json.loads(line))
        for child, _ in self._children.values():
            os.kill(child, signal.SIGKILL)
        for child, _ in self._children.values():
            self.killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        return self

    def _hear(self, place, message):
        for kind, value in message.items():
            if kind == "row":
                self._rows[place] = value
            elif kind == "restored":
                self.restored[place] = value
            elif kind == "wrong":
                self.problems.append(value)
            else:
                self.said[place][kind] = value
        if len(self._rows) == len(self._children):
            table = json.dumps([self._rows[i] for i in sorted(self._rows)]).encode()
            self._rows.clear()
            for _, line in self._children.values():
                try:
                    line.write(table + b"\n")
                    line.flush()
                except OSError:  # it was killed
                    continue


def story(folder, kills, rng):
    """(counts, problems)."""
    counts, there, begun = Counter(), 0, 0
    saving = [one for one in moments.MOMENTS if one != "restore-ended"]
    while counts["kills"] < kills:
        processes = rng.choice([1, 2, 4])
        goal = (
            (rng.choice(saving), rng.choice([1, 1, 2, 5]))
            if rng.random() < 0.7
            else None
        )
        if goal and goal[0].startswith("restore-") and not there:
            continue
        life = Life(folder, processes, goal, rng).run()
        counts["kills"] += life.killed
        counts["lives"] += 1
        problems = [f"{goal}: {one}" for one in life.problems]
        taken = set(life.restored.values())
        if len(taken) > 1:
            problems.append(f"{goal}: {life.restored} were restored beside each other")
        for number in taken:
            if not there <= number <= begun:
                problems.append(
                    f"{goal}: {number} restored, {there} was there, {begun} begun"
                )
        if taken:
            counts["restored"] += 1
            there = max(taken)
        all_there = min(one["there"] for one in life.said)
        there = max(there, all_there)
        begun = max([begun, there, *(one["begun"] for one in life.said)])
        counts["saved"] += max(one["there"] > 0 for one in life.said)
        if problems:
            return counts, problems
    return counts, []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.getrandbits(31))
    args = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    home = Path(tempfile.mkdtemp(prefix="jccl-site-checkpoints-"))
    begun = time.monotonic()
    counts, problems = story(str(home / "saved"), args.kills, random.Random(args.seed))
    for problem in problems:
        print(f"WRONG (--seed {args.seed}): {problem}")
    print(
        f"{counts['kills']} kills in {counts['lives']} lives, {counts['restored']} "
        f"times restored, {len(problems)} wrong, {time.monotonic() - begun:.0f} s"
    )
    if problems:
        raise SystemExit(f"folder: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
