"""`jccl restore`: an operator brings a checkpoint to a run, living or dead."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jccl
from jccl import _native
from jccl.errors import Code
from jccl.testing import Cluster, wait_until
from tests.python.test_restore import Trainer


class Saving(Trainer):
    """Saves each round, one after the other."""

    def __init__(self, comm, folder, **options):
        super().__init__(comm, **options)
        self.saves = jccl.Checkpoints(comm, folder, every=1, keep=9)

    def train(self, until):
        while self.rounds < until:
            super().train(self.rounds + 1)
            self.saves.save(self.state)
            self.saves.wait()
        return self


class Restore:
    """The command, beside the peers."""

    def __init__(self, cluster, folder, *words, token=None):
        argv = [sys.executable, "-m", "jccl.cli", "restore", str(folder), *words]
        argv += ["--master", cluster.master.address, "--wait", "40"]
        env = {"JCCL_ADMIN_TOKEN": token, "JCCL_TOKEN": token} if token else {}
        self._process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env, "JAX_PLATFORMS": "cpu"},
        )

    def ended(self):
        """Exit code and what it said."""
        try:
            output, _ = self._process.communicate(timeout=90)
        finally:
            self._process.kill()
        return self._process.returncode, output


def digest_of(comm):
    return comm.digest("diloco")


def gone_back(peer, rounds, times):
    """The peer, once it has heard of it so often and has stepped into the state."""
    wait_until(lambda: peer.comm.attributes().noticed == times, 40)
    while peer.rounds == rounds:
        peer.state = peer.step(*peer.state)
    return peer


@pytest.fixture
def trained(tmp_path):
    with Cluster(0, start_peers=2, restore_after=1.0) as cluster:
        comms = [cluster.join(site=name) for name in ("eu", "us")]
        peers = cluster.run(
            lambda comm, i: Saving(comm, tmp_path / str(i)).sync().train(3), comms
        )
        yield cluster, peers, tmp_path / "0"


def test_a_living_run_is_put_back_and_the_command_is_needed_no_longer(trained):
    cluster, peers, folder = trained
    restore = Restore(cluster, folder, "--number", "1")

    done = cluster.run(
        lambda comm, i: Trainer.train(gone_back(peers[i], 3, times=1), 4)
    )
    code, said = restore.ended()
    assert (code, said.splitlines()[-1]) == (0, "a peer has adopted it"), said
    assert "diloco: the run goes on from it as revision 4" in said
    assert len({peer.w.tobytes() for peer in done}) == 1
    assert (
        "went back to revision 1 of diloco" in cluster.comms[0].attributes().notices[0]
    )
    again = Restore(cluster, folder, "--number", "1")
    code, said = again.ended()
    assert (code, "diloco: was restored before, and the run" in said) == (0, True), said
    assert cluster.comms[0].attributes().noticed == 1
    restore = Restore(cluster, folder, "--number", "1", "--again")
    cluster.run(lambda comm, i: gone_back(peers[i], 4, times=2))
    code, said = restore.ended()
    assert (code, said.splitlines()[-1]) == (0, "a peer has adopted it"), said


def test_a_run_that_nobody_is_in_goes_on_from_the_checkpoint(trained):
    cluster, peers, folder = trained
    saved = peers[0].checkpoints[1]
    for comm in cluster.comms:
        comm.close()
    restore = Restore(cluster, folder, "--number", "2")
    wait_until(lambda: '"holders":1' in cluster.master.status_json(), 40)
    peer = Trainer(cluster.join(site="new")).sync()
    assert peer.w.tolist() == saved[1].anchor["w"].tolist()
    code, said = restore.ended()
    assert (code, said.splitlines()[-1]) == (0, "a peer has adopted it"), said
    assert peer.train(4).rounds == 4


def test_a_run_whose_leaves_are_cut_into_parts_is_put_back(tmp_path):
    mesh = jax.make_mesh((2,), ("d",), devices=jax.devices()[:2])
    rows = NamedSharding(mesh, PartitionSpec("d"))
    with Cluster(0, start_peers=1, restore_after=1.0) as cluster:
        where = cluster.master.address
        with jccl.sites.connect(where, site="eu", parts=2, deadline=40.0) as comm:
            params = {"w": jax.device_put(jnp.full((4, 2), 3.0), rows)}
            tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=1)

            @jax.jit
            def step(params, state):
                updates, state = tx.update(params, state, params)
                return optax.apply_updates(params, updates), state

            def w_of(state):
                return np.asarray(state[1].anchor["w"]).tolist()

            saves = jccl.Checkpoints(comm, tmp_path, every=1, keep=9)
            state, saved = jccl.sync_state((params, tx.init(params))), {}
            while state[1].rounds < 3:
                state = step(*state)
                saves.save(state)
                saves.wait()
                saved[int(state[1].rounds)] = w_of(state)
            restore = Restore(cluster, tmp_path, "--number", "1")
            wait_until(lambda: comm.attributes().noticed == 1, 40)
            state = step(*state)
            assert (int(state[1].status[0]), w_of(state)) == (Code.RESYNCED, saved[1])
            code, said = restore.ended()
            assert (code, said.splitlines()[-1]) == (0, "a peer has adopted it"), said
            assert "checkpoint 1 of eu" in said
            assert int(step(*state)[1].rounds) == 2


def test_what_cannot_be_restored_is_named_and_changes_nothing(trained, tmp_path):
    cluster, peers, folder = trained
    before = digest_of(peers[0].comm)
    missing = Restore(cluster, folder, "--number", "7")
    code, said = missing.ended()
    assert (code, "no checkpoint 7 of run" in said) == (1, True), said
    with Cluster(1) as other:
        for words in ((), ("--number", "1")):
            code, said = Restore(other, folder, *words).ended()
            assert (code, "there are 1 of run" in said) == (1, True), said
    assert digest_of(peers[0].comm) == before
    assert cluster.comms[0].attributes().noticed == 0


@pytest.mark.parametrize("operator", ["an admin", "who has the run's secret"])
def test_only_who_may_give_orders_puts_a_run_back(tmp_path, operator):
    core = _native.core()
    secret = core.new_token()
    with Cluster(0, start_peers=1, token=secret) as cluster:
        comm = cluster.join(token=secret, site="eu")
        honest = Saving(comm, tmp_path).sync().train(2)
        peer = Restore(
            cluster, tmp_path, "--number", "1", token=core.make_token(secret)
        )
        code, said = peer.ended()
        assert (code, "[AUTH]" in said) == (1, True), said
        admin = secret
        if operator == "an admin":
            admin = core.make_token(secret, role="admin")
        restore = Restore(cluster, tmp_path, "--number", "1", token=admin)
        gone_back(honest, 2, times=1)
        code, said = restore.ended()
        assert (code, said.splitlines()[-1]) == (0, "a peer has adopted it"), said
