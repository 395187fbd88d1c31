"""A run's rounds in miniature: peers that take samples by a pool, and what becomes of
their rounds. Everything is judged by what peers really took, not by the pool's word."""

import random

import numpy as np

from jccl.data import Form, Pool


class Peer:
    def __init__(self, number, pool, batch):
        self.id, self.batch = number, batch
        self.begin(pool)

    def begin(self, pool):
        """On a new anchor: nothing is held."""
        self.share, self.steps = pool.share(self.id), 0

    def train(self, steps):
        self.steps += steps if self.share else 0

    @property
    def count(self):
        return self.steps * self.batch

    def places(self):
        ranges = self.share.ranges(0, self.count) if self.share else []
        return [np.arange(*one) for one in ranges]


class Run:
    """Rounds of up to 8 peers under faults, all drawn from one seed."""

    def __init__(self, seed, rounds=25):
        self.random = random.Random(seed)
        size = self.random.choice([7, 300, 1000, 4096, 9973])
        block = self.random.choice([1, 16, 100])
        self.form = Form(size, seed, block, 16, 256).checked()
        self.pool = Pool(self.form)
        self.calm = self.random.choice([0.0, 0.1, 0.3])  # how likely a fault is
        self.next_id, self.most = 1, 0
        self.places = []  # of all that was counted
        self.peers = []
        for _ in range(self.random.randint(1, 8)):
            self.join()
        for _ in range(rounds):
            self.round()

    def join(self):
        self.peers.append(Peer(self.next_id, self.pool, self.random.randint(1, 9)))
        self.next_id += 1

    def has(self, chance):
        return self.random.random() < chance

    def round(self):
        for peer in self.peers:
            peer.train(self.random.randint(1, 6))
        for peer in list(self.peers):
            if self.has(self.calm / 2):  # killed before it is READY, or evicted
                self.peers.remove(peer)
                if self.has(0.5):
                    self.join()
        if self.has(self.calm / 4):  # admitted, and gone before any commit
            self.next_id += self.random.randint(1, 20)
        if self.has(self.calm) or not self.peers:
            if not self.peers:
                self.join()
            return  # aborted: nobody moves, all train on
        left_out = {p.id for p in self.peers if self.has(self.calm)}
        there = [p for p in self.peers if p.id not in left_out] or self.peers[:1]
        self.commit(there)
        for peer in list(self.peers):
            if self.has(self.calm / 4):  # killed when it was counted
                self.peers.remove(peer)
        while len(self.peers) < 8 and self.has(0.3):
            self.join()

    def commit(self, there):
        for peer in there:
            self.places += peer.places()
        record = sorted((peer.id, peer.count) for peer in there)
        before = Pool.of(self.pool.words(), self.form)  # as a joiner is told
        self.pool = self.pool.after(record)
        assert before.after(record) == self.pool
        self.most = max(self.most, len(self.pool.holes))
        for peer in self.peers:  # skipped and guarded ones too: all are on the anchor
            peer.begin(self.pool)

    @property
    def done(self):
        """Places up to here have all been counted."""
        return self.pool.holes[0][0] if self.pool.holes else self.pool.head

    def calmed(self):
        """Without faults until all that was given back before has been taken."""
        self.calm, mark = 0.0, self.pool.head
        for _ in range(400):
            self.round()
            if self.done >= mark and self.places:
                return self
        raise AssertionError(f"never taken again: {self.pool.holes}, of {mark}")

    def judge(self):
        """Every sample exactly once in each pass that is over, and in later ones none
        twice."""
        size, places = self.form.size, np.sort(np.concatenate(self.places))
        took = self.form.samples(places)
        assert (np.diff(places) > 0).all(), "a place was counted twice"
        whole = self.done // size
        assert (places[: whole * size] == np.arange(whole * size)).all(), "lost"
        for one in range(int(places[-1]) // size + 1):
            within = took[(places >= one * size) & (places < (one + 1) * size)]
            times = np.bincount(within, minlength=size)
            assert times.max(initial=0) <= 1, "a sample twice in a pass"
            assert one >= whole or times.min() == 1, "a sample missing in a pass"
