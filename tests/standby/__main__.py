"""`python -m tests.standby --faults N`: masters and members of etcd are killed, stopped
or paused, and started again, while peers reduce; every sum is checked, and no round may
be 60 s late."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path

import click

from tests.standby.etcd import Etcd
from tests.standby.test_standby import LEASE_S, Master, Peers

FAULTS = ("kill", "stop", "pause", "short pause", "etcd", "kill both")


class Pair:
    """Two addresses, each with a master that is started again when it ended."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store, self.folder = store, folder
        first = Master(store, folder)
        first.await_serving()
        self.masters = [first, Master(store, folder)]
        self.fenced = 0

    @property
    def active(self) -> Master:
        """The one that serves and has not ended."""
        serving = [
            m
            for m in self.masters
            if m.process.poll() is None and "JCCL_MASTER=" in m.output()
        ]
        return serving[-1] if serving else self.masters[0]

    def supervise(self) -> None:
        for i, master in enumerate(self.masters):
            if master.process.poll() is not None:
                said = master.output()
                self.fenced += "fenced" in said
                assert "Traceback" not in said, said
                self.masters[i] = Master(self.store, self.folder, master.address)

    def end(self) -> None:
        for master in self.masters:
            master.end()


def strike(what: str, pair: Pair, etcd: Etcd, chance: random.Random) -> None:
    active = pair.active
    if what == "kill":
        active.end()
    elif what == "stop":
        active.send(signal.SIGTERM)
    elif what == "kill both":
        for master in pair.masters:
            master.end()
    elif what == "etcd":
        member = chance.randrange(len(etcd.ports))
        etcd.kill(member)
        time.sleep(chance.uniform(0, 2))
        etcd.start(member)
    else:
        longer = 2.0 if what == "pause" else 0.3
        active.send(signal.SIGSTOP)
        time.sleep(longer * LEASE_S)
        active.send(signal.SIGCONT)


@click.command()
@click.option("--faults", default=30, show_default=True)
@click.option("--seed", type=int, default=None)
def main(faults: int, seed: int | None) -> None:
    """Kill masters and members of etcd under checked rounds."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    print(f"seed {seed}")
    with Etcd() as etcd, tempfile.TemporaryDirectory() as folder:
        store = f"etcd://{etcd.endpoints}/chaos?lease={LEASE_S}"
        pair = Pair(store, Path(folder))
        try:
            peers = Peers(",".join(m.address for m in pair.masters))
            peers.go_on()
            for i in range(faults):
                what = chance.choice(FAULTS)
                strike(what, pair, etcd, chance)
                time.sleep(chance.uniform(0, 1))
                pair.supervise()
                peers.go_on(chance.randrange(1, 30), timeout=60.0)
                print(f"{i + 1}: {what}, round {peers.rounds[0]}", flush=True)
            peers.end()
        except BaseException:
            for master in pair.masters:
                print(f"--- {master.address}\n{master.output()}")
            raise
        finally:
            pair.end()
        print(
            f"{faults} faults, {peers.rounds[0]} rounds, every sum right; "
            f"{pair.fenced} masters fenced; longest gap {max(peers.gaps):.1f} s"
        )


if __name__ == "__main__":
    main()
