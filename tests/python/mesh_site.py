"""One process of a site of several: what test_mesh_sites starts. Prints its results.

Arguments: site, process, processes, address of the site's JAX coordinator, what to do.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

site, process, processes, coordinator, what = sys.argv[1:6]
os.environ["JAX_PLATFORMS"] = "cpu"
# Of equal flags the last counts: tests/conftest.py says eight.
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=2"]
)

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import jccl  # noqa: E402
from jccl.optim.options import in_groups  # noqa: E402

# Of a world of several sites: its processes, this one's place, the first of the site
# and how many devices of each process its mesh has.
world, rank, first, each = map(
    int, os.environ.get("WORLD", f"{processes} {process} 0 2").split()
)
if world > 1:
    jax.distributed.initialize(coordinator, world, rank)

AUTO = jax.sharding.AxisType.Auto
OWN = [
    device
    for at in range(first, first + int(processes))
    for device in [d for d in jax.devices() if d.process_index == at][:each]
]
MESH = jax.make_mesh((len(OWN),), ("d",), axis_types=(AUTO,), devices=OWN)
SPECS = {"b": P(), "s": P(), "t": P(), "w": P(None, "d")}


def tree():
    return {
        "b": np.arange(7.0, dtype=np.float32),
        "s": np.float32(3),
        "t": np.arange(300 * 77, dtype=np.float32).reshape(300, 77) % 5,
        "w": np.arange(6.0 * 8, dtype=np.float32).reshape(6, 8),
    }


def placed(values, specs):
    def put(x, spec):
        place = NamedSharding(MESH, spec)
        return jax.make_array_from_callback(np.shape(x), place, lambda at: x[at])

    return jax.tree.map(put, jax.tree.map(np.asarray, values), specs)


def mapped(program, specs, outs):
    return jax.jit(
        jax.shard_map(
            program, mesh=MESH, in_specs=specs, out_specs=outs, check_vma=False
        )
    )


def whole(values, specs):
    """On every device, to look at."""

    def gather(x):
        return {
            name: jax.lax.all_gather(x[name], "d", axis=1, tiled=True)
            if len(specs[name]) > 1
            else x[name]
            for name in x
        }

    out = mapped(gather, (specs,), P())(values)
    return jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), out)


def reduces(comm):
    """Devices have values of their own; then leaves are cut over them."""
    ways = MESH.size

    def own(x):
        scale = 1.0 + jax.lax.axis_index("d") * (4 // ways)
        mine = jax.tree.map(lambda leaf: leaf * scale, x)
        out = jccl.all_reduce(mine, comm, tag="own", op="sum")
        return out.value, out.status

    plain = jax.tree.map(lambda _: P(), SPECS)
    value, status = mapped(own, (plain,), (plain, P()))(placed(tree(), plain))
    total = (1 + 2 + 3 + 4) + (1 + 3)  # four devices there, two here
    for name, leaf in whole(value, plain).items():
        np.testing.assert_array_equal(leaf, tree()[name] * total, err_msg=name)
    print("own", np.asarray(status.addressable_data(0)).tolist(), flush=True)

    def cut(x):
        out = jccl.all_reduce(
            x, comm, place=jccl.Place(axis_name=(), specs=SPECS), tag="cut", op="sum"
        )
        return out.value, out.status

    value, status = mapped(cut, (SPECS,), (SPECS, P()))(placed(tree(), SPECS))
    for name, leaf in whole(value, SPECS).items():
        np.testing.assert_array_equal(leaf, tree()[name] * 2, err_msg=name)
    print("cut", np.asarray(status.addressable_data(0)).tolist(), flush=True)


def halves(comm, tag, axes, specs):
    """A round in two programs: one begins it, the other ends it."""

    def begin(x):
        begun = jccl.start(
            x,
            comm,
            place=jccl.Place(axis_name=axes, specs=specs, passing=x),
            tag=tag,
            op="sum",
        )
        return begun.handle, begun.passed

    def end(handle, x):
        zeros = jax.tree.map(jax.numpy.zeros_like, x)
        out = jccl.done(
            handle,
            zeros,
            comm,
            place=jccl.Place(axis_name=axes, specs=specs),
            tag=tag,
            after=x,
        )
        return out.value, out.status

    handles = mapped(begin, (specs,), (P(), specs))
    return handles, mapped(end, (P(), specs), (specs, P()))


def code_of(status):
    return np.asarray(status.addressable_data(0)).tolist()


def begins_and_ends(comm):
    """Devices hold the same values and add them up, then leaves are cut over them."""
    plain = jax.tree.map(lambda _: P(), SPECS)
    for tag, axes, specs, ways in (
        ("all", "d", plain, int(os.environ["DEVICES"])),
        ("pieces", (), SPECS, 2),
    ):
        begin, end = halves(comm, tag, axes, specs)
        for turn in (1, 2):
            mine = jax.tree.map(lambda x, n=turn: x * n, tree())
            handle, passed = begin(placed(mine, specs))
            value, status = end(handle, passed)
            for name, leaf in whole(value, specs).items():
                wanted = tree()[name] * turn * ways
                np.testing.assert_array_equal(leaf, wanted, err_msg=name)
            print(tag, code_of(status), flush=True)
        _, status = end(handle, passed)  # a handle is good for once
        print("again", code_of(status), flush=True)


def holds_handles(comm):
    """Rounds that begin and end when the test says so, by files in the folder."""
    begin, end = halves(comm, "held", (), SPECS)
    x, rounds, go_on = placed(tree(), SPECS), 0, True

    def told(when):
        file = Path(what) / f"{when} {rounds}"
        while not file.exists():
            time.sleep(0.01)  # the test has the deadline
        return file.read_text() != "last"

    while go_on:
        rounds += 1
        go_on = told("begin")
        handle, passed = begin(x)
        jax.block_until_ready(passed)
        print("begun", [rounds], flush=True)
        told("end")
        value, status = end(handle, passed)
        code, world = code_of(status)[:2]
        print("ended", [code, world], flush=True)
        assert code == 0, [part.last_fault("held") for part in comm.comms]
        for name, leaf in whole(value, SPECS).items():
            np.testing.assert_array_equal(leaf, tree()[name] * world, err_msg=name)


def trains(comm, word, overlap, plain=False):
    """DiLoCo of sites that begin apart and do not agree on the gradient. `plain`: in a
    program that is not mapped over the devices."""
    shift = 0.0 if site == "eu" else 1.0
    start = jax.tree.map(lambda x: np.asarray(x / 100 + shift, np.float32), tree())
    params = placed(start, SPECS)
    inner = optax.sgd(0.05, momentum=0.5)
    tx = jccl.diloco(
        comm,
        inner,
        sync_every=2,
        rounds=jccl.Rounds(overlap=overlap, tag=word),
        codec="int8",
        place=jccl.Place(
            specs={k: NamedSharding(MESH, v) for k, v in SPECS.items()}
            if plain
            else SPECS
        ),
    )
    params, state = jccl.sync_state((params, tx.init(params)))
    specs = (SPECS, jccl.specs_like(state, params, SPECS))

    def step(carry, _):
        params, state = carry
        grads = jax.tree.map(lambda p: p * (1.5 - shift), params)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    def run(params, state):
        return jax.lax.scan(step, (params, state), None, length=4)[0]

    program = jax.jit(run) if plain else mapped(run, specs, specs)
    params, state = program(params, state)
    status = np.asarray(state.status.addressable_data(0)).tolist()
    rounds = int(state.rounds.addressable_data(0))
    digest = hashlib.sha256()
    for name, leaf in sorted(whole(state.anchor, SPECS).items()):
        digest.update(name.encode() + leaf.tobytes())
    print(word, [*status[:2], rounds, digest.hexdigest()], flush=True)


def stepper(comm, **options):
    """A compiled step of DiLoCo, with parameters and state that are synchronised."""
    params = placed(tree(), SPECS)
    tx = jccl.diloco(comm, optax.sgd(0.05), **in_groups(specs=SPECS, **options))
    params, state = jccl.sync_state((params, tx.init(params)))
    specs = (SPECS, jccl.specs_like(state, params, SPECS))

    def step(params, state):
        grads = jax.tree.map(lambda p: p * 0.1, params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return mapped(step, specs, specs), params, state


def anchor_digest(state):
    leaves = sorted(whole(state.anchor, SPECS).items())
    return hashlib.sha256(b"".join(leaf.tobytes() for _, leaf in leaves)).hexdigest()


def stays(comm):
    """Trains, a round per step, through whatever happens to sites, up to the round that
    the test writes into a file, far enough ahead for all to read it in time."""
    # With OVERLAP a round is under way while the next step is taken, and in its state.
    late = int(os.environ.get("OVERLAP", "0"))
    run, params, state = stepper(comm, sync_every=1 + late, overlap=late)
    rounds, last = 0, Path(what)
    while not last.exists() or rounds < int(last.read_text()):
        params, state = run(params, state)
        code, world = np.asarray(state.status.addressable_data(0)).tolist()[:2]
        rounds = int(state.rounds.addressable_data(0))
        print("step", [code, world, rounds, anchor_digest(state)], flush=True)


def edits():
    """One site changes its anchor between two rounds; the other one waits for it."""
    run, params, state = stepper(comm, sync_every=1)
    params, state = run(params, state)
    codes = []
    if site == "eu":
        anchor = {**state.anchor, "t": jax.jit(lambda x: x + 1)(state.anchor["t"])}
        params, state = run(params, state._replace(anchor=anchor))
        codes = code_of(state.status)[:1]
    params, state = run(params, state)
    print("edited", codes, flush=True)
    print("end", [*code_of(state.status)[:2], anchor_digest(state)], flush=True)


comm = jccl.sites.connect(
    site=site, parts=2, process=int(process), processes=int(processes), deadline=60.0
)
if what == "reduce and train":
    reduces(comm)
    trains(comm, "train", 0)
    trains(comm, "plain", 0, plain=True)
elif what == "edit":
    edits()
elif what == "begin and end":
    begins_and_ends(comm)
    trains(comm, "behind", 1)
elif Path(what).is_dir():
    holds_handles(comm)
else:
    stays(comm)
print("done", flush=True)
comm.close()
