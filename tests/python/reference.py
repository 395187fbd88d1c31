"""DiLoCo and its variants in numpy, by the papers' equations and the rules for a round
that did not end well. Written to be read beside the papers, not beside jccl.

Of a peer, with Δ = anchor - parameters (arXiv:2311.08105), for each fragment by itself
(arXiv:2501.18512), with what a codec Q leaves out kept as e (arXiv:1809.07599):

    sent       s = Δ + β e;  weight w · min(steps in Δ / H, 1)
    committed  anchor and outer state step by the run's mean; parameters become
               α · own + (1-α) · anchor
    counted    (committed, with this peer's values) e = s - Q(s), if w > 0
    left out   (committed without them) parameters are the new anchor minus Δ, which so
               is in the next round; e stays
    no commit  nothing changes: not anchor, outer state or e; parameters keep what they
               learnt
    replaced   (the run went on without this peer) anchor and outer state are the run's,
               e is 0, parameters are the anchor; a peer left behind keeps Δ on top of
               it, unless it may be in a result, or its state was not the run's

The inner optimizer's state is the peer's own in every case. Pure; leaves in lists.
"""

import numpy as np

from jccl.errors import Code

RESULT = (Code.OK, Code.GUARD, Code.SKIPPED)
NOBODY_HAS_IT = {
    Code.EMPTY,
    Code.TOO_FEW,
    Code.DEADLINE,
    Code.MISMATCH,
    Code.RESYNC,
    Code.ABORTED,
    Code.LINK_LOST,
}


def zeros(leaves):
    return [np.zeros_like(x) for x in leaves]


def each(function, *lists):
    return [function(*leaves) for leaves in zip(*lists, strict=True)]


class Momentum:
    """b <- μ b + Δ; anchor <- anchor - η (Δ + μ b), or η b without Nesterov."""

    def __init__(self, rate, momentum, nesterov=True):
        self.rate, self.momentum, self.nesterov = rate, momentum, nesterov

    def init(self, anchor):
        return zeros(anchor) if self.momentum else []

    def step(self, anchor, outer, mean):
        if not self.momentum:
            return each(lambda a, d: a - self.rate * d, anchor, mean), []
        outer = each(lambda b, d: self.momentum * b + d, outer, mean)
        if self.nesterov:
            mean = each(lambda b, d: d + self.momentum * b, outer, mean)
        else:
            mean = outer
        return each(lambda a, d: a - self.rate * d, anchor, mean), outer


class Adam:
    """Outer state: the count, then first and second moments of all leaves."""

    def __init__(self, rate, one=0.9, two=0.999, eps=1e-8):
        self.rate, self.one, self.two, self.eps = rate, one, two, eps

    def init(self, anchor):
        return [np.zeros((), np.int32), *zeros(anchor), *zeros(anchor)]

    def step(self, anchor, outer, mean):
        n, count = len(anchor), outer[0] + 1
        first = each(
            lambda m, d: self.one * m + (1 - self.one) * d, outer[1 : n + 1], mean
        )
        second = each(
            lambda v, d: self.two * v + (1 - self.two) * d * d, outer[n + 1 :], mean
        )
        m_scale, v_scale = 1 - self.one ** int(count), 1 - self.two ** int(count)
        moved = each(
            lambda a, m, v: (
                a - self.rate * (m / m_scale) / (np.sqrt(v / v_scale) + self.eps)
            ),
            anchor,
            first,
            second,
        )
        return moved, [np.int32(count), *first, *second]


def norm_of(delta):
    return np.sqrt(sum(np.sum(d * d) for d in delta))


class Inner:
    """Heavy ball, whose state must survive whatever happens to rounds."""

    def __init__(self, rate, momentum):
        self.rate, self.momentum = rate, momentum

    def step(self, params, trace, grads):
        trace = each(lambda m, g: self.momentum * m + g, trace, grads)
        return each(lambda p, m: p - self.rate * m, params, trace), trace


class Fragment:
    def __init__(self, leaves, params, outer):
        self.leaves = leaves  # which of the model's
        self.anchor = [params[i].copy() for i in leaves]
        self.outer = outer.init(self.anchor)
        self.rounds = self.since = 0
        self.doubt = self.edited = False
        self.left, self.pending = zeros(self.anchor), zeros(self.anchor)
        self.compared, self.limit = -1, None  # norms: at which count of rounds
        self.flying = None  # (call, step at which it began)
        self.code = 0

    def shared(self):
        return [*self.anchor, *self.outer, np.int32(self.rounds)]

    def adopt(self, shared):
        n = len(self.anchor)
        self.anchor = [np.array(x, np.float64) for x in shared[:n]]
        self.outer = [np.array(x) for x in shared[n:-1]]
        self.rounds = int(shared[-1])
        self.since, self.doubt, self.edited = 0, False, False
        self.left, self.pending = zeros(self.anchor), zeros(self.anchor)


class Peer:
    """`run` answers: `run.next(tag, sent, weight)` is what the transport saw of the
    round that this peer has begun, `run.newest(tag)` the run's state if that is another
    one than this peer's, else None, asked once after every round."""

    def __init__(self, params, inner, outer, *, every, fragments=None, **options):
        self.params = [np.array(x, np.float64) for x in params]
        self.trace = zeros(self.params)
        self.inner, self.outer, self.every = inner, outer, every
        owners = fragments or [0] * len(params)
        self.parts = [
            Fragment(
                [i for i, one in enumerate(owners) if one == f], self.params, outer
            )
            for f in range(max(owners) + 1)
        ]
        self.overlap = options.get("overlap", 0)
        self.alpha = options.get("alpha", 0.0)
        self.beta = options.get("beta")  # None: no error feedback
        self.folds = options.get("folds", True)
        self.clips = options.get("clips", False)
        self.step_count = self.skipped = self.code = 0

    def tag(self, i):
        return "diloco" if len(self.parts) == 1 else f"diloco.{i}"

    def step(self, grads, weight, run):
        self.params, self.trace = self.inner.step(self.params, self.trace, grads)
        self.step_count += 1
        for part in self.parts:
            part.since += 1
        self.rounds(weight, run)

    def begins(self):
        """H/P steps apart, rounded up where that is no whole number."""
        many = len(self.parts)
        place = (self.step_count - 1) % self.every + 1
        return place in {-(-k * self.every // many) for k in range(1, many + 1)}

    def turn(self):
        """The fragment with the fewest rounds, of those not in flight."""
        idle = [i for i, part in enumerate(self.parts) if part.flying is None]
        return min(idle, key=lambda i: self.parts[i].rounds, default=None)

    def rounds(self, weight, run):
        for i, part in enumerate(self.parts):
            if part.flying and self.step_count - part.flying[1] >= self.overlap:
                (call, begun), part.flying = part.flying, None
                self.take(i, call, self.step_count - begun, run)
                break
        if not self.begins() or (i := self.turn()) is None:
            return
        call = self.begin(i, self.delta(i), weight, run)
        if self.overlap:
            self.parts[i].flying = (call, self.step_count)
        else:
            self.take(i, call, 0, run)

    def own(self, i):
        return [self.params[k] for k in self.parts[i].leaves]

    def delta(self, i):
        return each(lambda a, p: a - p, self.parts[i].anchor, self.own(i))

    def begin(self, i, delta, weight, run):
        part = self.parts[i]
        if self.clips:
            if part.compared != part.rounds:
                part.compared, part.limit = part.rounds, run.median_norm(delta)
            own = norm_of(delta)
            delta = each(lambda d: d * min(1.0, part.limit / own), delta)
        sent = delta
        if self.beta is not None:
            sent = each(lambda d, e: d + self.beta * e, delta, part.left)
        weight *= min(part.since / self.every, 1)
        call = run.next(self.tag(i), sent, weight)
        for own, seen in zip(sent, call.sent, strict=True):
            half = np.abs(own).max() / 254 if call.encoded else 0  # of a step of int8
            np.testing.assert_allclose(seen, own, rtol=1e-4, atol=2e-5 + half)
        np.testing.assert_allclose(call.weight, weight, rtol=1e-6)
        part.pending = part.left
        if weight > 0:
            # A codec may go either way where it rounds: of the very bits it was given.
            known = sent if call.encoded else call.sent
            part.pending = each(lambda s, q: np.float64(s) - q, known, call.arrives)
        return call

    def take(self, i, call, held, run):
        part, code = self.parts[i], call.outcome.code
        before, since = part.anchor, part.since
        committed = code in RESULT
        if committed:
            part.anchor, part.outer = self.outer.step(
                part.anchor, part.outer, call.mean
            )
            part.rounds += 1
        if code == Code.OK and self.beta is not None:
            part.left = part.pending
        newest, edited, in_doubt = run.newest(self.tag(i)), part.edited, part.doubt
        behind = newest is not None
        if behind:
            part.adopt(newest)
        late = code == Code.RESYNC and behind and not in_doubt
        folds = self.folds and not edited and (code == Code.SKIPPED or late)
        self.meet(part, before, self.alpha * (not behind), folds, committed or behind)
        if committed or behind:
            part.doubt = False
            part.since = since if folds else 0 if behind else held
        else:
            part.doubt = in_doubt or code not in NOBODY_HAS_IT
        self.skipped += code != Code.OK
        part.code = self.code = Code.RESYNCED if behind else call.outcome.heals or code
        if behind and len(self.parts) > 1:
            self.look_at_the_others(run)

    def meet(self, part, before, keep, folds, moved):
        """Own parameters after a round."""
        for k, a, b in zip(part.leaves, part.anchor, before, strict=True):
            if folds:
                self.params[k] = self.params[k] + (a - b)
            elif moved:
                self.params[k] = keep * self.params[k] + (1 - keep) * a

    def look_at_the_others(self, run):
        """Who was left behind with one fragment is so with all, as a rule. Those in
        flight end with their own outcome."""
        for j, part in enumerate(self.parts):
            if part.flying is not None or (newest := run.newest(self.tag(j))) is None:
                continue
            part.adopt(newest)
            self.meet(part, part.anchor, 0.0, False, True)

    def restored(self, shared):
        """From a checkpoint in a new process: rounds in flight ended with the old one.
        `shared`: each fragment's newest state if the run has gone on, else None."""
        for i, part in enumerate(self.parts):
            part.doubt = part.doubt or part.flying is not None
            part.flying = None
            if shared:
                part.adopt(shared[i])
                self.meet(part, part.anchor, 0.0, False, True)
        total = sum(part.rounds for part in self.parts)
        whole, rest = divmod(total, len(self.parts))
        self.step_count = whole * self.every - (-rest * self.every // len(self.parts))


class EagerPeer(Peer):
    """arXiv:2502.12996, with the shared part apart from what this peer is ahead:
    parameters are anchor + a. See `jccl.optim.eager` for the sum of both."""

    def __init__(self, *args, delayed=False, **options):
        super().__init__(*args, **options)
        self.delayed, self.world = delayed, 0
        self.ahead_of_nothing()

    def ahead_of_nothing(self):
        part = self.parts[0]
        self.sent, self.share = zeros(part.anchor), 0.0
        self.a, self.c = zeros(part.anchor), zeros(part.anchor)

    def rounds(self, weight, run):
        if self.step_count % self.every:
            return
        part = self.parts[0]
        delta = each(lambda x, a, p: x + a - p, part.anchor, self.a, self.params)
        # Of a round that a checkpoint was taken in, nobody says that it was delivered.
        undelivered = self.sent
        if part.flying:
            (call, begun), part.flying = part.flying, None
            self.take(0, call, self.step_count - begun, run)
            self.world = call.world
            if part.code == Code.RESYNCED:
                self.ahead_of_nothing()
                delta = zeros(delta)
            if part.code in (Code.OK, Code.GUARD, Code.RESYNCED):
                undelivered = zeros(delta)
        sent = each(np.add, delta, undelivered)
        share = 0.0 if self.delayed or not self.world else 1 / self.world
        fresh = each(lambda n, b: share * n - self.share * b, sent, self.sent)
        self.a, self.c = Momentum.step(self.outer, self.a, self.c, fresh)
        self.sent, self.share = sent, share
        part.flying = (self.begin(0, sent, weight, run), self.step_count)
        self.params = each(np.add, part.anchor, self.a)

    def restored(self, shared):
        super().restored(shared)
        if shared:
            self.ahead_of_nothing()


class JoiningPeer(Peer):
    """It receives the round that the others are about, then one's inner state."""

    asks = True

    def begins(self):
        return self.asks or super().begins()

    def begin(self, i, delta, weight, run):
        return super().begin(i, delta, weight * (not self.asks), run)

    def rounds(self, weight, run):
        part, before = self.parts[0], self.parts[0].rounds
        super().rounds(weight, run)
        if self.asks:
            self.step_count = part.rounds * self.every
        if self.asks and part.rounds != before:
            self.trace, self.asks = run.inner(), False


class BetweenPeer(Peer):
    """Rounds between steps: each begins and ends with a call, H steps apart."""

    def rounds(self, weight, run):
        part = self.parts[0]
        if self.step_count % self.every == 0 and part.flying is None:
            part.since = self.every  # it counts by its weight alone
            call = self.begin(0, self.delta(0), weight, run)
            part.flying = (call, self.step_count)
        if part.flying and self.step_count - part.flying[1] >= self.overlap:
            (call, begun), part.flying = part.flying, None
            self.take(0, call, self.step_count - begun, run)
            if self.code == Code.RESYNCED:
                self.step_count = part.rounds * self.every
