"""A language model in flax.nnx, with a tokenizer and Grain, on samples counted once.

    pip install 'jccl[data,flax]' tokenizers
    jccl run -n 2 -- python examples/tokens_nnx.py

The tokenizer (byte-level BPE) is trained on the text itself, the same on every peer: its
vocabulary is the same wherever the text is. `jccl.data.Feed` puts a Grain pipeline over
the plan of the run, so that no sample is trained on twice in a pass, whichever peers
come and go.
"""

import argparse
import hashlib

import corpus
import flax.nnx as nnx
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tokenizers

import jccl

VOCABULARY, LENGTH, BATCH, SYNC_EVERY = 512, 32, 8, 5


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.attention = nnx.MultiHeadAttention(
            num_heads=2, in_features=width, decode=False, rngs=rngs
        )
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class Model(nnx.Module):
    def __init__(self, width, layers, rngs):
        self.tokens = nnx.Embed(VOCABULARY, width, rngs=rngs)
        self.places = nnx.Embed(LENGTH, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, rngs) for _ in range(layers)])

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.places(jnp.arange(tokens.shape[-1]))
        for block in self.blocks:
            x = block(x)
        return self.tokens.attend(x)


def tokens_of(text):
    """The text as token ids, and a digest of the vocabulary."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text], VOCABULARY, show_progress=False)
    digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    return np.array(tokenizer.encode(text).ids, np.int32), digest


def main(comm, rounds, tokens, width=64, layers=2):
    """Returns the loss of the first and of the last step, in nats per token."""
    usable = (len(tokens) - 1) // LENGTH
    source = np.stack([tokens[i * LENGTH :][: LENGTH + 1] for i in range(usable)])

    def pipeline(samples):
        return grain.MapDataset.source(samples).batch(BATCH)

    plan = jccl.data.Plan(comm, len(source), batch=BATCH)
    travel, late = jccl.Travel(data=plan), jccl.Rounds(late="drop")
    inner = optax.adam(3e-3)
    tx = jccl.diloco(comm, inner, sync_every=SYNC_EVERY, travel=travel, rounds=late)
    # The plan counts what is in a pytree, so the model is split once.
    static, params = nnx.split(Model(width, layers, nnx.Rngs(0)))
    params = nnx.to_pure_dict(params)
    carry = jccl.sync_state((params, tx.init(params)))
    feed = jccl.data.Feed(plan, source, pipeline)

    def loss_of(params, batch):
        state = nnx.state(nnx.eval_shape(lambda: Model(width, layers, nnx.Rngs(0))))
        nnx.replace_by_pure_dict(state, params)
        logits = nnx.merge(static, state)(batch[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:])
        return losses.mean()

    @jax.jit
    def step(carry, batch):
        params, state = carry
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), loss

    losses = []
    while carry[1].rounds < rounds:
        carry, batch = feed.take(carry)
        carry, loss = step(carry, batch)
        losses.append(float(loss))
    jccl.check(carry[1])
    return losses[0], losses[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    text = corpus.load_held_out()[:200_000].tobytes().decode(errors="replace")
    tokens, digest = tokens_of(text)
    with jccl.connect() as comm:
        first, last = main(comm, args.rounds, tokens)
        print(f"vocabulary {digest[:16]}, loss {first:.2f} to {last:.2f}", flush=True)
