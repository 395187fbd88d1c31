"""A small model whose training is audited, and ways to cheat: for tests of audits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

H, BATCH, WIDTH = 20, 32, 16
RATE = 1e-2


def start_params():
    a, b = np.random.default_rng(0), np.random.default_rng(1)
    return {
        "first": jnp.asarray(0.2 * a.normal(size=(WIDTH, 64)), jnp.float32),
        "last": jnp.asarray(0.1 * b.normal(size=(64, 4)), jnp.float32),
    }


def batch_of(peer, step):
    """Data of a peer, as everybody can make them."""
    x, y = segment_of(peer, step, 1)
    return x[0], y[0]


def segment_of(peer, first, steps):
    """The same of steps in a row, [steps, …]; what `first` says, all of them say."""
    rows = np.arange(first, first + steps, dtype=np.uint32)[:, None, None]
    place = np.arange(BATCH * WIDTH, dtype=np.uint32).reshape(BATCH, WIDTH)
    bits = (place + rows * np.uint32(BATCH * WIDTH)) * np.uint32(2654435761)
    bits ^= np.uint32(peer * 40503 * 2246822519 % (1 << 32))
    bits = (bits ^ bits >> 15) * np.uint32(3266489917)
    x = ((bits ^ bits >> 13) >> 8).astype(np.float32) / 2**22 - 2  # -2 to 2
    return x, np.sin(x[..., :4] + x[..., 4:8])


def batches_of(claim):
    return [batch_of(claim.peer, claim.cursor + i) for i in range(claim.steps)]


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["first"]) @ params["last"] - y) ** 2)


def split_grad(params, batch, parts=1):
    """The same gradient, of a batch cut into so many."""
    cut = [z.reshape(parts, -1, z.shape[-1]) for z in batch]
    grads = [jax.grad(loss)(params, x, y) for x, y in zip(*cut, strict=True)]
    return jax.tree.map(lambda *g: sum(g) / parts, *grads)


def cheating(inner):
    """`inner` whose updates are scaled and blurred: 1 and 0 are honest."""

    def update(updates, state, params, *, scale, noise):
        updates, state = inner.update(updates, state, params)

        def one(u):
            blur = jnp.sin(12.9898 * jnp.arange(u.size, dtype=u.dtype))
            blur = blur.reshape(u.shape) * jnp.sqrt(2 * jnp.mean(u * u))
            return scale * u + noise * blur

        return jax.tree.map(one, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def cheat(name, step):
    """(scale, noise, whether the data are its own) of a step of a segment, 0 to H-1."""
    return {
        "honest": (1.0, 0.0, True),
        "one step left out": (float(step != 7), 0.0, True),
        "half of the steps, doubled": (2.0 * (step < H // 2), 0.0, True),
        "other data": (1.0, 0.0, False),
        "noise added": (1.0, 1.0, True),
        "sign turned": (-1.0, 0.0, True),
    }[name]


CHEATS = [
    "one step left out",
    "half of the steps, doubled",
    "other data",
    "noise added",
    "sign turned",
]
INNER = cheating(optax.adam(RATE))


@functools.partial(jax.jit, static_argnames="parts")
def inner_step(params, inner, batch, parts=1):
    """An honest step."""
    grads = split_grad(params, batch, parts)
    updates, inner = INNER.update(grads, inner, params, scale=1.0, noise=0.0)
    return optax.apply_updates(params, updates), inner


@functools.partial(jax.jit, static_argnames="parts")
def segments(params, batches, how, parts=1):
    """Pseudo-gradients of many segments at once, f32[many, n]: `batches` are arrays
    [many, H, …], `how` f32[many, H, 2]: scale and noise of each step."""

    def one(batches, how):
        def step(carry, xs):
            (now, inner), (batch, how) = carry, xs
            grads = split_grad(now, batch, parts)
            updates, inner = INNER.update(grads, inner, now, scale=how[0], noise=how[1])
            return (optax.apply_updates(now, updates), inner), ()

        carry = (params, INNER.init(params))
        (last, _), _ = jax.lax.scan(step, carry, (batches, how))
        away = jax.tree.map(jnp.subtract, params, last)
        return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(away)])

    return jax.vmap(one)(batches, how)
