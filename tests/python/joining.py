"""For tests of joiners: who is there goes on alone until the newcomer is in."""

import itertools
import time


def rounds_of_two(step, carry, xs, rounds=6, seconds=60):
    """Steps `carry` (parameters and state) until a round of two peers, then `rounds`
    more. The newcomer may take its time: a count of rounds would run out on a loaded
    machine, and nobody would be there for it."""
    give_up = time.monotonic() + seconds
    xs = itertools.cycle(xs)
    end = None
    while end is None or int(carry[1].rounds) < end:
        assert time.monotonic() < give_up, f"{carry[1].rounds} rounds, to be {end}"
        carry, _ = step(*carry, next(xs)[None])
        if end is None and int(carry[1].status[1]) == 2:
            end = int(carry[1].rounds) + rounds
    return carry
