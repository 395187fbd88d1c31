"""`jccl.ray` on a Ray of this machine."""

import concurrent.futures
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import jccl
import jccl.ray
from jccl import _native
from jccl.errors import AuthError
from jccl.testing import wait_until

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="no Ray: pip install 'jccl[ray]'"
)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def local():
    import ray

    # Actors are of no use to each other's tests: their numbers of processors are not
    # those of this machine.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def reduce_and_die_once():
    """Peer 1 is killed in its first life, and ends the run in its next."""
    index = int(os.environ["JCCL_PEER_INDEX"])
    again = os.environ["JCCL_PEER_LIFE"] != "0"
    with jccl.connect() as comm:
        over = 0.0
        while not over:
            if index == 1 and not again and comm.attributes().rounds_committed > 2:
                os.kill(os.getpid(), signal.SIGKILL)
            mine = [1.0, float(again)]
            total, over = map(float, comm.all_reduce(mine, op="sum").value)
        return comm.site, total


@needs_ray
def test_a_peer_that_is_killed_comes_back_and_all_return(local):
    results = jccl.ray.run(reduce_and_die_once, 3)
    assert results == [(f"peer-{index}", 3.0) for index in range(3)]


def reduce_until_over(folder):
    """Ends in a round for which all see the file; says where each began."""
    index, life = (os.environ[f"JCCL_PEER_{what}"] for what in ("INDEX", "LIFE"))
    with jccl.connect() as comm:
        over = 0.0
        while not over:
            mine = [1.0, float(Path(folder, "over").exists())]
            total, over = map(float, comm.all_reduce(mine, op="sum").value)
            Path(folder, f"{index}.{life}").write_text(str(total))
        return int(life), total


def lose_a_node(cluster, node, folder):
    """Once all three have reduced, and until they do so again; which peer was there."""

    def peers_of_three(life):
        found = folder.glob(f"*.{life}")
        return [int(path.stem) for path in found if said(path) == "3.0"]

    wait_until(lambda: len(peers_of_three(0)) == 3, 120, "a round of three")
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1)
    wait_until(lambda: peers_of_three(1), 120, "another round of three")
    return peers_of_three(1)[0]


def said(path):
    return path.read_text() if path.exists() else ""


@needs_ray
def test_a_peer_whose_node_is_lost_begins_on_another(tmp_path):
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        node = cluster.add_node(num_cpus=1)
        with concurrent.futures.ThreadPoolExecutor(1) as aside:
            run = aside.submit(
                jccl.ray.run, reduce_until_over, 3, args=(str(tmp_path),)
            )
            try:
                lost = lose_a_node(cluster, node, tmp_path)
            finally:
                (tmp_path / "over").touch()
            results = run.result(200)
    finally:
        ray.shutdown()
        cluster.shutdown()
    lives = [int(index == lost) for index in range(3)]
    assert results == [(life, 3.0) for life in lives]


def fail():
    raise KeyError("a mistake of the program")


@needs_ray
def test_a_mistake_of_the_program_ends_the_run(local):
    with pytest.raises(KeyError, match="a mistake of the program"):
        jccl.ray.run(fail, 2)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@needs_ray
def test_a_peer_that_dies_again_and_again_ends_the_run(local):
    with pytest.raises(RuntimeError, match="peer-0 died 2 times"):
        jccl.ray.run(die, 1, restarts=1)


def example(folder, rounds):
    program = Path(__file__).parents[2] / "examples" / "ray_train.py"
    argv = [sys.executable, str(program), str(rounds), str(folder / "saved")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(
        argv, cwd=folder, text=True, start_new_session=True, **pipes
    )


@needs_ray
def test_the_example_goes_on_after_its_driver_was_killed(tmp_path):
    """With all that it had started."""
    first = example(tmp_path, 10**6)
    try:
        wait_until(lambda: list(tmp_path.glob("saved/*/*/*.json")), 240, "a checkpoint")
    finally:
        for one in [*psutil.Process(first.pid).children(recursive=True), first]:
            one.kill()
        first.communicate(timeout=60)
    at = max(int(path.name) for path in (tmp_path / "saved").iterdir())
    second = example(tmp_path, at + 20)
    said, _ = second.communicate(timeout=400)
    assert second.returncode == 0, said
    found = re.search(
        r"2 peers, from rounds \((\d+), (\d+)\), digests {'[0-9a-f]{32}'}", said
    )
    assert found, said
    assert all(0 < int(begun) <= at for begun in found.groups())


def test_a_journal_keeps_its_secret_for_the_next_driver(tmp_path, monkeypatch):
    store = f"sqlite:{tmp_path / 'run.db'}"
    secret = jccl.ray._secret_of(store)
    assert jccl.ray._secret_of(store) == secret != jccl.ray._secret_of("memory:")
    kept = tmp_path / "run.db.secret"
    assert kept.stat().st_mode & 0o777 == 0o600
    master = _native.core().Master.start(store=store, token=secret, start_peers=1)
    master.stop()
    again = _native.core().Master.start(
        store=store, token=jccl.ray._secret_of(store), start_peers=1
    )
    again.stop()
    kept.write_text("")
    with pytest.raises(AuthError):
        jccl.ray._secret_of(store)
    monkeypatch.setenv("JCCL_TOKEN", "given")
    assert jccl.ray._secret_of(store) == "given"


@pytest.mark.parametrize("wrong", [{"peers": 0}, {"peers": 1, "restarts": -1}])
def test_numbers_that_make_no_run_are_refused(wrong):
    with pytest.raises(jccl.InvalidError, match="at least 1 peer"):
        jccl.ray.run(fail, **wrong)


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is not None, reason="there is a Ray"
)
def test_without_ray_it_says_what_to_install():
    with pytest.raises(ImportError, match=r"pip install 'jccl\[ray\]'"):
        jccl.ray.run(fail, 1)
