"""Kills a peer, or the master, at every named moment of the drivers.

    python -m tests.stress.failpoints             # in CI: each point, each position
    python -m tests.stress.failpoints --full      # also rounds, worlds, codecs, stops

Each case is a cluster of its own; many run side by side, for most of their time is
waiting. The one who is to fail reports the point just before (JCCL_FAIL,
net/fail_at.h), so that a point which is not reached is seen. Then a new peer, or the
master, starts, and everybody must commit further rounds; all results go to the judge.
"""

import argparse
import re
import shutil
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.stress.cluster import ROOT, Cluster, StressError, free_port

# Ten clusters whose peers never rest keep two cores from everything else, and write
# more results than the judge can read meanwhile.
PACE = ("--pause-ms", "50")
CHUNKED = ("--elements", "5987", "--chunk-bytes", "4096")  # 6 frames to each other peer
ROUND_POINTS = (
    "ready-sent", "start-received", "result-complete", "done-sent", "commit-received",
    "commit-written", "call-ended",
)  # fmt: skip
TOLD_MAX = {"welcome": 3, "roster": 9}  # three peers that join hear no more for sure
FIRST, MIDDLE, LAST = range(3)  # positions in the order of ids


@dataclass
class Case:
    point: str
    count: int = 1  # of the times it is reached
    who: int | None = None  # position; None: the master
    joiner: bool = False  # the peer that fails, or makes others fail, comes later
    restarted: bool = False  # the master fails in its second life
    modes: str = "f32-in"
    peers: int = 3
    action: str = "kill"

    @property
    def name(self):
        who = "master" if self.who is None else f"{self.who + 1} of {self.peers}"
        more = " joiner" * self.joiner + " restarted" * self.restarted
        return f"{self.action} at {self.point} {self.count}, {who}{more}, {self.modes}"


def points():
    """Names of all failpoints, from their table."""
    text = (ROOT / "cpp/base/failpoint.h").read_text()
    return re.findall(r'X\(\w+, "([\w.-]+)"\)', text)


def peer_cases(peers=3, modes="f32-in", rounds=(2,), action="kill"):
    positions = sorted({0, peers // 2, peers - 1})
    frames = 6 * (peers - 1)
    for who in positions:
        common = {"who": who, "modes": modes, "peers": peers, "action": action}
        yield Case("peer.hello-sent", 1, **common)
        if who != positions[-1]:  # lower ids dial
            yield Case("peer.link-dialled", 1, **common)
        if who != positions[0]:
            yield Case("peer.link-accepted", 1, **common)
        for n in rounds:
            for point in ROUND_POINTS:
                yield Case(f"peer.{point}", n, **common)
            for part in (
                2,
                frames // 2 + 1,
                frames,
            ):  # one sent, half of them, all made
                yield Case("peer.frame-made", (n - 1) * frames + part, **common)
            for part in (1, frames // 2):
                yield Case("peer.frame-arrived", (n - 1) * frames + part, **common)


def snapshot_cases(action="kill"):
    common = {"modes": "f32-in,state", "joiner": True, "action": action}
    for who in (FIRST, MIDDLE, LAST):
        yield Case("peer.snapshot-serving", 1, who, **common)
    for point, count in (("fetching", 1), ("fetching", 2), ("fetched", 1)):
        yield Case(f"peer.snapshot-{point}", count, 3, **common)


def master_cases(told=(1, 2, 3), action="kill"):
    common = {"modes": "f32-in,state", "action": action}
    for restarted in (False, True):
        yield Case("master.recovered", 1, restarted=restarted, **common)
        for when in ("appending", "appended"):
            yield Case(f"master.epoch-{when}", 1, restarted=restarted, **common)
            yield Case(f"master.commit-{when}", 1, restarted=restarted, **common)
            yield Case(f"master.state-{when}", 1, restarted=restarted, **common)
    for when in ("appending", "appended"):
        yield Case(f"master.run-{when}", 1, **common)
        yield Case(f"master.birth-{when}", 1, **common)
        yield Case(f"master.epoch-{when}", 2, **common)  # the first peer is admitted
        yield Case(f"master.epoch-{when}", 4, **common)  # the third
        yield Case(f"master.commit-{when}", 4, **common)
    for message in ("welcome", "roster", "start", "commit"):
        for count in told:  # after the first peer heard it, after the second, after all
            if count > TOLD_MAX.get(message, count):
                continue
            yield Case(f"master.{message}-told", count, **common)


def every_case(full):
    yield from peer_cases()
    yield from snapshot_cases()
    yield from master_cases()
    if not full:
        return
    for peers in (2, 3, 5):
        for modes in (
            "f32-in",
            "f32-out",
            "int8-in",
            "int4-out",
            "async",
            "multi",
            "fed",
        ):
            yield from peer_cases(peers, modes, (1, 2, 3))
    yield from peer_cases(3, "f32-in,state", (1, 2, 3))
    yield from peer_cases(action="stop")
    yield from snapshot_cases("stop")
    yield from master_cases(tuple(range(4, 13)))
    yield from master_cases(action="stop")


class Trial:
    """One case, from the start of its cluster to the verdict."""

    def __init__(self, case, folder, args):
        self.case, self.patience = case, args.patience
        chunks = (
            CHUNKED if case.modes == "f32-in" or args.full else ("--elements", "509")
        )
        self.cluster = Cluster(
            folder,
            args.programs,
            master=["--start-peers", str(case.peers), "--silence-ms", "1000"],
            peer=["--modes", case.modes, "--deadline", "60", *PACE, *chunks],
        )
        self.cluster.port = free_port()
        self.fail = f"{case.point}:{case.count}:{case.action}"

    def await_(self, what, condition):
        limit = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > limit:
                raise StressError(f"{what} did not happen: {self.cluster.describe()}")
            time.sleep(0.02)

    def admitted(self, site):
        path = self.cluster.folder / "history.jsonl"
        return path.exists() and f'"admit","site":"{site}"' in path.read_text()

    def start_armed(self, *more):
        """A peer that will fail, nobody knows when."""
        peer = self.cluster.start_peer(*more, fail=self.fail)
        site = self.cluster.story.lives[peer.name].site
        self.armed = self.cluster.story.trouble(time.monotonic(), [site], self.fail)
        self.failing = peer
        return peer

    def rearm(self):
        """Another life of the peer that shall fail, which others may ask sooner."""
        site = self.cluster.story.lives[self.failing.name].site
        self.cluster.kill_peers([self.failing])
        self.armed.until = time.monotonic()
        self.start_armed("--site", site)

    def start_peers(self):
        """One after the other, so that ids ascend; whoever fails early is replaced."""
        case = self.case
        for position in range(case.peers):
            fails = case.who == position
            site = f"site-{position}"
            start = self.start_armed if fails else self.cluster.start_peer
            peer = start("--site", site)
            if case.who is None or (fails and case.point == "peer.hello-sent"):
                continue  # who fails before it is admitted never is
            self.await_(site, lambda s=site, p=peer: self.admitted(s) or not p.living())

    def failed_peer(self):
        return next(
            (
                p
                for p in self.cluster.peers.values()
                if p.complaint()[:9] == "failpoint"
            ),
            None,
        )

    def peer_fails(self):
        case = self.case
        self.cluster.start_master()
        self.start_peers()
        if case.joiner:
            self.cluster.await_rounds(1, ["state"], self.patience)
            fails = case.who == case.peers
            start = self.start_armed if fails else self.cluster.start_peer
            start("--site", "joiner")
        # Who is asked for a snapshot is not known beforehand: others join until it is,
        # one after the other, as each that stays makes it less likely. Of holders that
        # can be reached the lowest incarnation is asked first, and that is drawn.
        other, joined = None, 0
        begun = time.monotonic()
        tries = 3 if case.point == "peer.snapshot-serving" else 1
        limit = begun + tries * self.patience
        while (peer := self.failed_peer()) is None:
            now = time.monotonic()
            if now > limit:
                raise StressError(f"not reached: {self.cluster.describe()}")
            # On a busy machine one takes long to come so far that it says something.
            said = other is None or other.log.stat().st_size > 0
            patience = 1 if said else 8
            if case.point == "peer.snapshot-serving" and now > begun + patience:
                begun = now
                if other is not None and other.living():
                    self.cluster.kill_peers([other])
                if joined % 3 == 2:
                    self.rearm()
                other, joined = self.cluster.start_peer(), joined + 1
            time.sleep(0.01)
        if case.action == "stop":
            time.sleep(2.5)  # longer than the silence allowed
            peer.process.send_signal(18)
            self.armed.until = time.monotonic()
            return
        peer.process.wait()
        self.armed.until = time.monotonic()
        self.cluster.died(peer)
        peer.errors.write_text("")
        self.cluster.faults["peer SIGKILL"] += 1
        self.cluster.bury(peer)
        self.cluster.start_peer("--site", f"site-{case.who}")

    def master_fails(self):
        case, cluster = self.case, self.cluster
        early = not case.restarted
        if case.restarted:
            cluster.start_master()
            self.start_peers()
            cluster.await_rounds(1, case.modes.split(","), self.patience)
            cluster.kill_master()
        cluster.start_master(fail=self.fail, wait=False)
        cluster.story.master_goes(time.monotonic())  # or later, nobody knows when
        if early:
            self.start_peers()
        said = f"failpoint {case.point}"
        self.await_("the point", lambda: said in cluster.master_said())
        if case.action == "stop":
            time.sleep(1.5)
            cluster.master.send_signal(18)
            cluster.story.master_comes(time.monotonic())
            return
        cluster.master.wait()
        cluster.faults["master SIGKILL"] += 1
        cluster.start_master()

    def run(self):
        cluster = self.cluster
        try:
            if self.case.who is None:
                self.master_fails()
            else:
                self.peer_fails()
            cluster.await_rounds(2, self.case.modes.split(","), self.patience)
            cluster.probe_deadlines(self.patience)
        except StressError as fault:
            cluster.judge.problems.append(str(fault))
        finally:
            cluster.stop()
        cluster.judged()
        return self.case, cluster.judge.problems, cluster.judge.counts


def run_all(cases, args, home):
    """Problems by case, and the counts of all."""
    problems, counts, reached = {}, Counter(), Counter()

    def one(item):
        number, case = item
        return number, *Trial(case, home / f"case-{number}", args).run()

    with ThreadPoolExecutor(args.jobs) as pool:
        for number, case, wrong, seen in pool.map(one, enumerate(cases)):
            counts += seen
            if wrong:
                problems[case.name] = wrong
                print(f"WRONG: case {number}, {case.name}: {wrong[0]}", flush=True)
            else:
                reached[case.point] += 1
                shutil.rmtree(home / f"case-{number}")
    return problems, counts, reached


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--programs", help="folder of the programs, else the build's")
    parser.add_argument("--jobs", type=int, default=10, help="clusters side by side")
    parser.add_argument("--patience", type=float, default=40)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    cases = [c for c in every_case(args.full) if args.only in c.name]
    home = Path(tempfile.mkdtemp(prefix="jccl-failpoints-"))
    begun = time.monotonic()
    problems, counts, reached = run_all(cases, args, home)
    missing = [] if args.only else sorted(set(points()) - set(reached))
    for point in missing:
        print(f"WRONG: no case passed at {point}")
    seconds = time.monotonic() - begun
    print(
        f"{len(cases)} cases at {len(reached)} failpoints, {counts['call Ok']} results "
        f"compared, {counts['results that needed a retry']} of them retried, "
        f"{len(problems)} cases wrong, {seconds:.0f} s"
    )
    if problems or missing:
        raise SystemExit(f"logs: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
