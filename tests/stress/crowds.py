"""Many die at once, many join at once, sites die in part, the master's disk fills up.

    python -m tests.stress.crowds               # in CI
    python -m tests.stress.crowds --only disk   # cases whose name contains this

Real processes; each case says what must hold, and every result goes to the judge.
"""

import functools
import time

from tests.stress import cases
from tests.stress.cluster import Cluster, StressError

PATIENCE_S = 90
CASES = {}


def case(modes, **options):
    def note(function):
        CASES[function.__name__] = function, modes, options
        return function

    return note


class World(cases.World):
    def __init__(self, folder, args, modes, start_peers=3, elements=1021, plan=""):
        self.modes = modes.split(",")
        options = [
            "--modes", modes, "--elements", str(elements), "--deadline", "120",
            "--plan", plan,
        ]  # fmt: skip
        start = ["--start-peers", str(start_peers)]
        super().__init__(Cluster(folder, args.programs, master=start, peer=options))

    def rounds(self, count=2, what=None):
        seconds = self.cluster.await_rounds(count, self.modes, PATIENCE_S)
        if what:
            self.times[what] = seconds

    def start(self, count, *more):
        return [self.cluster.start_peer(*more) for _ in range(count)]


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
    before = world.evictions()["west"]
    cluster.kill_peers(sites["west"][:1])
    world.must(world.evictions()["west"] >= before, "counts of evictions fell")
    replacement = ("--site", "west", "--shard", "0", "--shards", "2")
    cluster.start_peer(*replacement)  # its sister shard comes back by itself
    world.rounds(what="two rounds after half a site died")
    world.must(world.evictions()["west"] > before, "half a site died, the site stayed")
    world.must(not world.evictions()["north"], "a site that lost nobody was evicted")


@case("f32-in,f32-out")
def thirty_join_at_once(world):
    """Members go on meanwhile, nobody is evicted; then the thirty die at once."""
    cluster = world.cluster
    cluster.start_master()
    members = world.start(3)
    world.rounds()
    joiners = world.start(30)
    world.rounds(what="two rounds of all 33")
    world.must(not world.evictions(), f"evicted by joiners: {world.evictions()}")
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
    world.must(not world.evictions(), f"evicted by joiners: {world.evictions()}")


@case("f32-in,int8-in,multi")
def disk_full(world):
    """The master stops loudly; with room again it goes on, and nothing told is lost."""
    cluster = world.cluster
    cluster.start_master(file_bytes_max=256 * 1024)
    cluster.story.master_goes(time.monotonic())  # or later, nobody knows when
    world.start(3)
    limit = time.monotonic() + PATIENCE_S
    while cluster.master.poll() is None:
        cluster.read()
        if time.monotonic() > limit:
            raise StressError(f"the disk did not fill up: {cluster.describe()}")
        time.sleep(0.02)
    world.must(cluster.master.returncode == 3, f"exit {cluster.master.returncode}")
    said = cluster.master_said()
    world.must("the journal failed, the master stops" in said, f"it said: {said}")
    before = sum(cluster.newest().values())
    world.must(before > 0, "no round before the disk was full")
    cluster.start_master()
    world.rounds(what="two rounds after the restart with room")


def main():
    args = cases.parser(__doc__, jobs=3).parse_args()
    worlds = {
        name: (functools.partial(World, args=args, modes=modes, **options), act)
        for name, (act, modes, options) in CASES.items()
    }
    cases.run("crowds", worlds, args, also=("peer SIGKILL", "peers killed"))


if __name__ == "__main__":
    main()
