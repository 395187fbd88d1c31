"""Many die at once, many join at once, sites die in part, the master's disk fills up.

    python -m tests.stress.crowds               # in CI
    python -m tests.stress.crowds --only disk   # cases whose name contains this

Real processes; each case says what must hold, and every result goes to the judge.
"""

import argparse
import json
import shutil
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.stress.cluster import Cluster, Fault

PATIENCE_S = 90
CASES = {}


def case(modes, **options):
    def note(function):
        CASES[function.__name__] = function, modes, options
        return function

    return note


class World:
    def __init__(self, folder, args, modes, start_peers=3, elements=1024, plan=""):
        self.modes, self.times = modes.split(","), {}
        self.cluster = Cluster(
            folder,
            args.programs,
            master=["--start-peers", str(start_peers)],
            peer=[
                "--modes", modes, "--elements", str(elements), "--deadline", "120",
                "--plan", plan,
            ],
        )  # fmt: skip

    def rounds(self, count=2, what=None):
        seconds = self.cluster.await_rounds(count, self.modes, PATIENCE_S)
        if what:
            self.times[what] = seconds

    def start(self, count, *more):
        return [self.cluster.start_peer(*more) for _ in range(count)]

    def evicted(self):
        path = self.cluster.folder / "history.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return Counter(line["site"] for line in lines if line["kind"] == "evict")

    def must(self, holds, what):
        if not holds:
            self.cluster.judge.problems.append(what)


@case("f32-in,f32-out,int8-in,int4-out,async,multi", start_peers=8)
def all_but_one_die_at_once(world):
    cluster = world.cluster
    cluster.start_master()
    world.start(8)
    world.rounds()
    for survivor in range(3):
        living = list(cluster.peers.values())
        kept = living[survivor * 3]
        cluster.kill_peers([p for p in living if p is not kept])
        world.rounds(what=f"two rounds of the survivor, {survivor + 1}")
        world.start(7)
        world.rounds()


@case("f32-in,int8-in,int4-out", plan="ring")
def one_after_the_other_dies_in_a_ring(world):
    """Its sums are not quantised on their way; the oracle knows that formula too."""
    cluster = world.cluster
    cluster.start_master()
    world.start(4)
    for _ in range(4):
        world.rounds()
        cluster.kill_peers([next(iter(cluster.peers.values()))])
        world.start(1)
    world.rounds()
    quantised = {tag for tag, n in cluster.judge.rings}
    world.must(quantised == {"int8-in", "int4-out"}, f"rings: {quantised}")


@case("f32-in,state", start_peers=4)
def all_holders_but_one_die_at_once(world):
    """The state lives on in the one that is left; joiners get it."""
    cluster = world.cluster
    cluster.start_master()
    world.start(4)
    world.rounds()
    for _ in range(3):
        kept, *others = cluster.peers.values()
        cluster.kill_peers(others)
        world.rounds(what="two rounds of the survivor")
        world.start(3)
        world.rounds()
        cluster.kill_peers([kept])  # next time another one is left
        world.start(1)
        world.rounds()


@case("f32-in,int8-in")
def everybody_dies_with_the_master(world):
    """The journal is what is left: rounds go on with the next numbers."""
    cluster = world.cluster
    cluster.start_master()
    for _ in range(3):
        world.start(3)
        world.rounds(3)
        cluster.kill_peers(list(cluster.peers.values()))
        cluster.kill_master()
        cluster.start_master()
    world.start(3)
    world.rounds(3, what="three rounds of a new crew")


@case("f32-in,multi")
def whole_and_half_sites_die(world):
    """A site of two shards goes as a whole, also when one shard dies."""
    cluster = world.cluster
    cluster.start_master()
    sites = {}

    def start(site):
        sites[site] = [
            cluster.start_peer("--site", site, "--shard", str(i), "--shards", "2")
            for i in range(2)
        ]

    for site in ("north", "south", "west"):
        start(site)
    world.rounds()
    cluster.kill_peers(sites["south"])
    world.rounds(what="two rounds without the site")
    start("south")
    world.rounds()
    before = world.evicted()["west"]
    cluster.kill_peers(sites["west"][:1])
    world.must(world.evicted()["west"] >= before, "counts of evictions fell")
    replacement = ("--site", "west", "--shard", "0", "--shards", "2")
    cluster.start_peer(*replacement)  # its sister shard comes back by itself
    world.rounds(what="two rounds after half a site died")
    world.must(world.evicted()["west"] > before, "half a site died, the site stayed")
    world.must(not world.evicted()["north"], "a site that lost nobody was evicted")


@case("f32-in,f32-out")
def thirty_join_at_once(world):
    """Members go on meanwhile, nobody is evicted; then the thirty die at once."""
    cluster = world.cluster
    cluster.start_master()
    members = world.start(3)
    world.rounds()
    joiners = world.start(30)
    world.rounds(what="two rounds of all 33")
    world.must(not world.evicted(), f"evicted by joiners: {world.evicted()}")
    cluster.kill_peers(joiners)
    world.rounds(what="two rounds after the thirty died")
    world.must(all(p.living() for p in members), "a member died")


@case("f32-in,state")
def twelve_join_a_state_at_once(world):
    cluster = world.cluster
    cluster.start_master()
    world.start(3)
    world.rounds()
    world.start(12)
    world.rounds(what="two rounds of all 15 with equal state")
    world.must(not world.evicted(), f"evicted by joiners: {world.evicted()}")


@case("f32-in,int8-in,multi")
def disk_full(world):
    """The master stops loudly; with room again it goes on, and nothing told is lost."""
    cluster = world.cluster
    cluster.start_master(file_bytes_max=256 * 1024)
    world.start(3)
    limit = time.monotonic() + PATIENCE_S
    while cluster.master.poll() is None:
        cluster.read()
        if time.monotonic() > limit:
            raise Fault(f"the disk did not fill up: {cluster.describe()}")
        time.sleep(0.02)
    world.must(cluster.master.returncode == 3, f"exit {cluster.master.returncode}")
    said = cluster.master_said()
    world.must("the journal failed, the master stops" in said, f"it said: {said}")
    before = sum(cluster.newest().values())
    world.must(before > 0, "no round before the disk was full")
    cluster.start_master()
    world.rounds(what="two rounds after the restart with room")


def run_case(name, folder, args):
    function, modes, options = CASES[name]
    world = World(folder, args, modes, **options)
    cluster = world.cluster
    try:
        function(world)
    except Fault as fault:
        cluster.judge.problems.append(str(fault))
    except Exception:
        cluster.judge.problems.append(traceback.format_exc())
    finally:
        cluster.stop()
    cluster.judge.read_journal(folder / "journal.db")
    return name, cluster.judge.problems, world


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--programs", help="folder of the programs, else the build's")
    parser.add_argument("--jobs", type=int, default=3, help="clusters side by side")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="jccl-crowds-"))
    names = [name for name in CASES if args.only in name]
    begun, wrong, counts = time.monotonic(), 0, Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = pool.map(lambda n: run_case(n, home / n, args), names)
        for name, problems, world in runs:
            counts += world.cluster.judge.counts + world.cluster.faults
            times = ", ".join(f"{what}: {t:.2f}" for what, t in world.times.items())
            print(f"{name}: {times or 'ok'}", flush=True)
            for problem in problems[:3]:
                print(f"WRONG: {name}: {problem}", flush=True)
            wrong += len(problems)
            if not problems:
                shutil.rmtree(home / name)
    seconds = time.monotonic() - begun
    print(
        f"{len(names)} cases, {counts['peer SIGKILL']} peers killed, "
        f"{counts['call Ok']} results compared, "
        f"{counts['results that needed a retry']} of them retried, "
        f"{wrong} wrong, {seconds:.0f} s"
    )
    if wrong:
        raise SystemExit(f"logs: {home}")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
