"""A peer of test_data_killed: trains by a plan and writes down each batch before it
takes the step, until the round that the file `stop` names."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

import jccl
from tests.python.killed import FORM

folder, batch = Path(sys.argv[1]), int(sys.argv[2])

with jccl.connect(reactions=jccl.Reactions(on_fault="warn")) as comm:
    plan = jccl.data.Plan(comm, batch=batch, **FORM)
    tx = jccl.diloco(
        comm,
        optax.sgd(0.01),
        sync_every=3,
        rounds=jccl.Rounds(late="drop"),
        travel=jccl.Travel(data=plan),
    )

    @jax.jit
    def step(carry, x):
        params, state = carry
        grads = jax.tree.map(lambda p: jnp.full_like(p, x), params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = {"w": jnp.ones((64, 64))}
    carry = jccl.sync_state((params, tx.init(params)))
    stop = folder / "stop"
    while not stop.exists() or plan.pool.rounds < int(stop.read_text()):
        carry, ids = plan.take(carry)
        row = [comm.attributes().id, plan.pool.rounds, plan.counted, ids.tolist()]
        # In one write: lines of the log come between two.
        print(f"TOOK {json.dumps(row)}\n", end="", flush=True)
        carry = step(carry, float(ids.mean()) * 1e-3)
