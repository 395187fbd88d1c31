"""For tests of joiners: who is there goes on alone until the newcomer is in."""

import time


def rounds_of_two(step, carry, xs, rounds=6, seconds=60):
    """Steps `carry` (parameters and state) until a round of two peers, then `rounds`
    more. The newcomer may take its time: a count of rounds would run out on a loaded
    machine, and nobody would be there for it."""
    give_up = time.monotonic() + seconds
    end = None
    for n in range(10**9):
        met, done = int(carry[1].status[1]) == 2, int(carry[1].rounds)
        if end is None and met:
            end = done + rounds
        if end is not None and done >= end:
            return carry
        assert time.monotonic() < give_up, f"{done} rounds, met: {met}"
        carry, _ = step(*carry, xs[n % len(xs)][None])
