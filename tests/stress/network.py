"""Cuts, one-way cuts, slow and lying links, resets, pauses; real processes.

    python -m tests.stress.network              # in CI
    python -m tests.stress.network --only cut   # cases whose name contains this

Three peers and a master behind a proxy (proxy.py). Each case says what must hold: who
is evicted and who never is, that everybody commits again after the fault, and that no
result is wrong. Times are reported, not asserted, save that nothing takes a minute.
"""

import functools
import subprocess
import time

from tests.stress import cases
from tests.stress.cluster import Cluster, StressError, free_port, program
from tests.stress.proxy import Network
from tests.stress.story import PROXY

SILENCE_S = 3.0  # the proxy is one of many on a loaded machine
PAUSED_SILENCE_S = 1.0
PATIENCE_S = 60
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class World(cases.World):
    """A cluster whose connections all go through a proxy. Peers are a, b and c."""

    def __init__(
        self,
        folder,
        args,
        tls=False,
        modes="f32-in,int8-in",
        elements=4099,
        silence_s=SILENCE_S,
        proxied=True,
    ):
        self.network, self.modes, self.proxied = Network(), modes.split(","), proxied
        self.troubles = []
        environment = {}
        options = ["--modes", modes, "--elements", str(elements), "--deadline", "120"]
        if tls:
            master = program("jccl-master", args.programs)
            token = subprocess.check_output([master, "--new-token"], text=True).strip()
            environment["JCCL_TOKEN"] = token
            options += ["--token", token]
        silence = ["--silence-ms", str(int(silence_s * 1000))]
        cluster = Cluster(
            folder,
            args.programs,
            master=["--start-peers", "3", *silence],
            peer=options,
            environment=environment,
        )
        super().__init__(cluster)
        self.full = args.full

    def __enter__(self):
        self.network.watch(functools.partial(self.cluster.story.starved, PROXY))
        self.cluster.start_master()
        self.master_port = self.cluster.port
        if self.proxied:
            self.master_port = self.network.listen("master", self.cluster.port)
        for name in "abc":
            self.start_peer(name)
        self.rounds()
        return self

    def __exit__(self, *_):
        self.heal()
        super().__exit__()
        self.network.close()

    def counts(self):
        return super().counts() + self.network.counts

    def start_peer(self, name):
        options = ["--master", f"127.0.0.1:{self.master_port}", "--site", name]
        if self.proxied:
            port = free_port()
            shown = self.network.listen(name, port)
            options += ["--bind", f"127.0.0.1:{port}"]
            options += ["--advertise", f"127.0.0.1:{shown}"]
        with self.network.naming:
            peer = self.cluster.start_peer(*options)
            self.network.processes[name] = peer.process.pid

    def peer(self, name):
        pid = self.network.processes[name]
        return next(p for p in self.cluster.peers.values() if p.process.pid == pid)

    def rounds(self, count=2, of="abc", what=None):
        """These peers commit so many more rounds of each tag."""
        peers = [self.peer(name) for name in of]
        begun = time.monotonic()
        self.cluster.read()
        floor = self.cluster.newest()
        while not all(
            p.newest.get(tag, 0) >= floor[tag] + count
            for p in peers
            for tag in self.modes
        ):
            self.cluster.read()
            if time.monotonic() > begun + PATIENCE_S:
                raise StressError(f"{what or 'no'} rounds: {self.cluster.describe()}")
            time.sleep(0.01)
        if what:
            self.times[what] = time.monotonic() - begun

    def trouble(self, names, what):
        """For the judge. Of a link between two peers nobody may be evicted."""
        peers = [name for name in names if name != "master"]
        who = {0: None, 1: peers, 2: []}.get(len(peers))
        self.troubles.append(self.cluster.story.trouble(time.monotonic(), who, what))

    def cut(self, *names, one_way=False):
        """And lets what was under way arrive."""
        self.trouble(names, "cut")
        if one_way:
            self.network.set_way(*names, cut=True)
        else:
            self.network.set(*names, cut=True)
        time.sleep(0.2)

    def bend(self, *names, **faults):
        self.trouble(names, f"{faults}")
        self.network.set(*names, **faults)

    def heal(self):
        self.network.heal()
        for trouble in self.troubles:
            trouble.until = min(trouble.until, time.monotonic())

    def nobody_is_evicted(self):
        self.must(not self.evictions(), "somebody was evicted")


@case
def cut_between_two_peers(world):
    """The plan goes round the link, everybody stays."""
    world.cut("a", "b")
    world.rounds(2, what="two rounds without the link")
    world.nobody_is_evicted()
    world.heal()
    world.rounds()


@case
def one_way_cut_between_two_peers(world):
    world.cut("a", "c", one_way=True)
    world.rounds(2, what="two rounds without the link")
    world.nobody_is_evicted()
    world.heal()
    world.rounds()


@case
def cut_of_a_peer_from_everybody(world):
    """It is evicted and named, the others go on; healed, it comes back."""
    world.cut("b")
    world.rounds(2, of="ac", what="two rounds of the others")
    world.must(set(world.evictions()) == {"b"}, "not just b was evicted")
    world.heal()
    world.rounds(what="two rounds of all after healing")


@case
def cut_of_a_peer_from_the_master(world):
    world.cut("c", "master")
    world.rounds(2, of="ab", what="two rounds of the others")
    world.must(set(world.evictions()) == {"c"}, "not just c was evicted")
    world.heal()
    world.rounds(what="two rounds of all after healing")


@case
def one_way_cut_to_the_master(world):
    world.cut("a", "master", one_way=True)
    world.rounds(2, of="bc", what="two rounds of the others")
    world.must(set(world.evictions()) == {"a"}, "not just a was evicted")
    world.heal()
    world.rounds(what="two rounds of all after healing")


@case
def one_way_cut_from_the_master(world):
    """It hears nothing, so it dials again, and is never answered: evicted."""
    world.cut("master", "a", one_way=True)
    world.rounds(2, of="bc", what="two rounds of the others")
    world.must(set(world.evictions()) == {"a"}, "not just a was evicted")
    world.heal()
    world.rounds(what="two rounds of all after healing")


@case
def slow_peer(world):
    """100 kB/s to and from one peer: rounds are slow, nobody is evicted."""
    world.bend("b", rate=100e3)
    world.rounds(3, what="three slow rounds")
    world.nobody_is_evicted()


@case
def long_delay(world):
    """50 ms each way, everywhere."""
    world.bend("a", "b", "c", "master", delay=0.05)
    world.rounds(3, what="three rounds at 100 ms")
    world.nobody_is_evicted()


@case
def resets(world):
    """Connections are reset twenty times a second."""
    world.trouble((), "resets")
    for _ in range(60):
        world.network.reset_one()
        world.cluster.read()
        time.sleep(0.05)
    world.heal()
    world.rounds(what="two rounds after 60 resets")
    world.must(world.network.counts["resets"] >= 50, "too few resets")


def lie(world, rates, seconds):
    """Bytes are flipped at these rates; what arrives is right, and healed all go on."""
    seconds *= 10 if world.full else 1
    for rate in rates:
        world.bend("a", "b", "c", "master", flips=rate)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            world.cluster.read()
            time.sleep(0.05)
    world.heal()
    world.rounds(what="two rounds after the flips")
    world.must(world.network.counts["flipped bytes"] > 0, "no byte was flipped")


@case
def flips_rare(world):
    lie(world, [1e-6, 1e-5], 4)


@case
def flips_often(world):
    lie(world, [1e-4, 1e-3], 3)


@case
def flips_everywhere(world):
    lie(world, [1e-2], 3)


@case
def flips_under_tls(world):
    lie(world, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2], 2)


def pause(world, name, seconds):
    peer = world.peer(name)
    world.cluster.pause(peer, seconds)
    time.sleep(seconds)
    world.cluster.wake(everyone=True)


@case
def short_pauses(world):
    """Thirty of 0.3 × the silence allowed (--full: 100): nobody is ever evicted."""
    for number in range(100 if world.full else 30):
        pause(world, "abc"[number % 3], 0.3 * PAUSED_SILENCE_S)
        world.rounds(1)
    world.nobody_is_evicted()


@case
def pauses_of_the_limit(world):
    """At the limit either may happen; nothing may be wrong and all come back."""
    for name in "abc":
        pause(world, name, PAUSED_SILENCE_S)
        world.rounds()
    world.times["evicted of 3"] = sum(world.evictions().values())


@case
def long_pauses(world):
    """3 × the silence allowed: evicted, named; woken it is fenced and comes back."""
    for name in "abc":
        peer = world.peer(name)
        world.cluster.pause(peer, 3 * PAUSED_SILENCE_S)
        others = "abc".replace(name, "")
        begun = time.monotonic()
        world.rounds(2, of=others, what=f"two rounds while {name} is stopped")
        time.sleep(max(0, 3 * PAUSED_SILENCE_S - (time.monotonic() - begun)))
        world.cluster.wake(everyone=True)
        world.must(world.evictions()[name] == 1, f"{name} was not evicted once")
        reasons = [e["reason"] for e in world.history("evict") if e["site"] == name]
        world.must(all(name in r for r in reasons), "the reason does not name it")
        world.rounds(what=f"two rounds after {name} woke")


PAUSED = {"silence_s": PAUSED_SILENCE_S, "proxied": False}
BIG = {"elements": 65537, "modes": "f32-in"}
WORLDS = {  # what a case needs other than the usual
    "flips_rare": BIG,
    "flips_often": BIG,
    "flips_under_tls": {**BIG, "tls": True},
    "short_pauses": PAUSED,
    "pauses_of_the_limit": PAUSED,
    "long_pauses": PAUSED,
}


def main():
    parser = cases.parser(__doc__, jobs=5)
    parser.add_argument("--full", action="store_true", help="more pauses, longer lies")
    args = parser.parse_args()
    worlds = {
        name: (functools.partial(World, args=args, **WORLDS.get(name, {})), act)
        for name, act in CASES.items()
    }
    cases.run("network", worlds, args, also=("flipped bytes", "bytes flipped"))


if __name__ == "__main__":
    main()
