"""`jccl restore`: an operator brings a checkpoint to a run, living or dead."""

import threading

import pytest
from click.testing import CliRunner

import jccl
from jccl import _native
from jccl.cli.restore import command
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


class Restore(threading.Thread):
    """The command, in a thread beside the peers."""

    def __init__(self, cluster, folder, *words, token=None):
        super().__init__(daemon=True)
        argv = [str(folder), "--master", cluster.master.address, "--wait", "40", *words]
        env = {"JCCL_ADMIN_TOKEN": token, "JCCL_TOKEN": token} if token else {}
        self.run = lambda: self.invoke(argv, env)
        self.result = None
        self.start()

    def invoke(self, argv, env):
        self.result = CliRunner().invoke(command, argv, env=env)

    @property
    def output(self):
        self.join(60)
        assert self.result is not None, "it does not end"
        return self.result.output


def digest_of(comm):
    return comm.digest("diloco")


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

    def program(comm, index):
        wait_until(lambda: comm.attributes().noticed == 1, 40)
        peer = peers[index]
        while peer.rounds == 3:
            peer.state = peer.step(*peer.state)
        return Trainer.train(peer, 4)

    done = cluster.run(program)
    assert restore.output.endswith("waits for a peer to take it\ntaken\n")
    assert restore.result.exit_code == 0
    assert "diloco: the run goes on from it as revision 4" in restore.output
    assert len({peer.w.tobytes() for peer in done}) == 1
    assert (
        "went back to revision 1 of diloco" in cluster.comms[0].attributes().notices[0]
    )
    again = Restore(cluster, folder, "--number", "1")
    assert "diloco: was restored before; the run is at" in again.output
    assert cluster.comms[0].attributes().noticed == 1


def test_a_run_that_nobody_is_in_goes_on_from_the_checkpoint(trained):
    cluster, peers, folder = trained
    saved = peers[0].checkpoints[1]
    for comm in cluster.comms:
        comm.close()
    restore = Restore(cluster, folder, "--number", "2")
    wait_until(lambda: '"holders":1' in cluster.master.status_json(), 40)
    peer = Trainer(cluster.join(site="new")).sync()
    assert peer.w.tolist() == saved[1].anchor["w"].tolist()
    assert restore.output.endswith("taken\n")
    assert peer.train(4).rounds == 4


def test_what_cannot_be_restored_is_named_and_changes_nothing(trained, tmp_path):
    cluster, peers, folder = trained
    before = digest_of(peers[0].comm)
    missing = Restore(cluster, folder, "--number", "7")
    assert missing.output == ""
    assert "no checkpoint 7 of run" in str(missing.result.exception)
    with Cluster(1) as other:
        foreign = Restore(other, folder)
        assert foreign.output == ""
        assert "there are 1 of run" in str(foreign.result.exception)
    assert digest_of(peers[0].comm) == before
    assert cluster.comms[0].attributes().noticed == 0


def test_only_who_may_give_orders_puts_a_run_back(tmp_path):
    core = _native.core()
    secret = core.new_token()
    with Cluster(0, start_peers=1, token=secret) as cluster:
        comm = cluster.join(token=secret, site="eu")
        Saving(comm, tmp_path).sync().train(2)
        peer = Restore(
            cluster, tmp_path, "--number", "1", token=core.make_token(secret)
        )
        assert "is whole" in peer.output
        assert isinstance(peer.result.exception, jccl.AuthError)
        admin = core.make_token(secret, role="admin")
        Restore(cluster, tmp_path, "--number", "1", token=admin)
        wait_until(lambda: comm.attributes().noticed == 1, 40)
