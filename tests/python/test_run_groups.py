"""Groups of a run: communicators for some of its peers, each a run of its own."""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import jccl
from jccl import _native
from jccl.cli import group as jccl_command
from jccl.testing import Cluster, Processes, wait_until

PEER = Path(__file__).with_name("grouped_peer.py")


def ones(value):
    return np.full(4, value, np.float32)


def open_groups(address, **how):
    status = json.loads(_native.core().query_status(address, **how))
    return {one["group"]: one["sites"] for one in status["groups"]}


@pytest.fixture(scope="module")
def four():
    """Four peers: the first two in "west", the last three in "east"."""
    with Cluster(4) as cluster:

        def join(comm, i):
            west = comm.group("west", start_peers=2) if i < 2 else None
            east = comm.group("east", start_peers=3) if i > 0 else None
            return west, east

        groups = cluster.run(join)
        yield cluster, [g[0] for g in groups[:2]], [g[1] for g in groups[1:]]


def test_each_group_reduces_its_own_values_over_its_own_world(four):
    cluster, west, east = four
    sums = cluster.run(
        lambda c, i: c.all_reduce(ones(1 + i), op="sum", tag="t"), west + east
    )
    assert [r.world for r in sums] == [2, 2, 3, 3, 3]
    assert [float(r.value[0]) for r in sums] == [3.0, 3.0, 12.0, 12.0, 12.0]
    whole = cluster.run(lambda c, i: c.all_reduce(ones(1), op="sum", tag="t"))
    assert [(r.n, r.world) for r in whole] == [(1, 4)] * 4
    assert open_groups(cluster.master.address) == {"east": 3, "west": 2}


def test_calls_in_two_groups_and_the_run_go_on_at_the_same_time(four):
    cluster, west, east = four
    comms = [*west, *east, *cluster.comms]

    def rounds(comm, i):
        return [
            float(comm.all_reduce(ones(k), op="sum", tag="both").value[0])
            for k in range(20)
        ]

    got = cluster.run(rounds, comms)
    worlds = [2.0] * 2 + [3.0] * 3 + [4.0] * 4
    assert got == [[world * k for k in range(20)] for world in worlds]


def test_a_compiled_program_reaches_a_group(four):
    cluster, west, _ = four

    def program(comm, i):
        step = jax.jit(lambda x: jccl.all_reduce(x, comm, op="sum", tag="jit").value)
        return float(step(jnp.full(3, i + 1.0))[0])

    assert cluster.run(program, west) == [3.0, 3.0]


def test_a_state_is_shared_in_a_group_alone(four):
    cluster, _, east = four
    synced = cluster.run(lambda c, i: c.sync_state(ones(7), tag="state"), east)
    assert {s.revision for s in synced} == {0}
    assert all(c.revision("state") == 0 for c in cluster.comms)
    status = json.loads(_native.core().query_status(cluster.master.address))
    assert "state" not in {t["tag"] for t in status["tags"]}
    there = _native.core().query_status(cluster.master.address, group="east")
    assert "state" in {t["tag"] for t in json.loads(there)["tags"]}


def test_asked_again_it_is_the_same_communicator_of_the_same_site(four):
    cluster, west, _ = four
    assert cluster.comms[0].group("west") is west[0]
    sites = set(west[0].attributes().sites)
    assert sites <= set(cluster.comms[0].attributes().sites) and len(sites) == 2


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "-a", "a" * 65, "ä"])
def test_a_name_that_could_be_a_path_is_refused_in_words(four, name):
    with pytest.raises(jccl.InvalidError):
        four[0].comms[0].group(name)


def test_the_commands_show_a_group(four):
    cluster = four[0]
    where = ["--master", cluster.master.address]
    whole = CliRunner().invoke(jccl_command, ["status", *where]).output
    assert "group east: 3 sites" in whole and "group west: 2 sites" in whole
    said = CliRunner().invoke(jccl_command, ["status", *where, "--group", "west"])
    assert said.exit_code == 0 and "group west" in said.output
    unknown = CliRunner().invoke(jccl_command, ["status", *where, "--group", "north"])
    assert unknown.exit_code != 0


def test_it_is_left_with_the_communicator_that_joined_it():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        group = comm.group("west")
        other = comm.group("east")
        other.close()
        assert comm.group("east") is not other
        comm.close()
        assert group.closed
        with pytest.raises(jccl.ClosedError):
            comm.group("west")


def test_one_more_than_the_master_serves_is_refused_in_words():
    with Cluster(1, max_groups=1) as cluster:
        comm = cluster.comms[0]
        comm.group("a")
        with pytest.raises(jccl.LimitError, match="--max-groups"):
            comm.group("b")
        assert comm.all_reduce(ones(1)).ok


def test_a_process_may_join_a_group_alone(monkeypatch):
    with Cluster(0, start_peers=1) as cluster:
        monkeypatch.setenv("JCCL_GROUP", "west")
        alone = cluster.join()
        site = jccl.Site("whole", group="")
        run = cluster.join(site=site)
        assert open_groups(cluster.master.address) == {"west": 0}
        assert alone.all_reduce(ones(1)).world == run.all_reduce(ones(1)).world == 1
        assert open_groups(cluster.master.address) == {"west": 1}


def test_who_has_no_token_opens_no_group_and_one_of_another_site_neither():
    core = _native.core()
    secret = core.new_token()
    for_a = core.make_token(secret, role="peer", site="a")
    with Cluster(0, start_peers=1, token=secret) as cluster:
        west = {"group": "west"}
        with pytest.raises(jccl.AuthError):
            cluster.join(site=jccl.Site(**west))
        with pytest.raises(jccl.AuthError):
            cluster.join(token=for_a, site=jccl.Site("b", **west))
        assert open_groups(cluster.master.address, token=secret) == {}
        member = cluster.join(token=for_a, site="a").group("west")
        assert member.all_reduce(ones(1)).ok
        assert open_groups(cluster.master.address, token=secret) == {"west": 1}


def test_by_a_spent_token_its_key_alone_opens_a_group():
    core = _native.core()
    secret = core.new_token()
    once = core.make_token(secret, role="peer", site="a", uses=1)
    with Cluster(0, start_peers=1, token=secret) as cluster:
        owner = cluster.join(token=once, site="a")
        assert owner.all_reduce(ones(1)).ok
        with pytest.raises(jccl.BannedError):  # whoever has stolen it
            cluster.join(token=once, site=jccl.Site("a", group="west"))
        assert owner.group("west").all_reduce(ones(1)).ok  # by the same key


def test_a_port_that_the_communicator_has_is_not_asked_for_twice():
    with Cluster(0, start_peers=1) as cluster:
        comm = cluster.join(transport=jccl.Transport(bind="127.0.0.1:0"))
        port = comm.attributes().listen.rpartition(":")[2]
        comm.close()
        bound = cluster.join(transport=jccl.Transport(bind=f"127.0.0.1:{port}"))
        with pytest.raises(jccl.InvalidError, match="transport"):
            bound.group("west")
        own = jccl.Transport(bind="127.0.0.1:0")
        assert bound.group("west", transport=own).all_reduce(ones(1)).ok


def last(process, name):
    """Number, world and sum of the newest round of the run or group, as printed."""
    lines = [x.split() for x in process.output().splitlines() if x.startswith(name)]
    whole = [x for x in lines if len(x) == 4]
    if not whole:
        return 0, 0, 0.0
    _, n, world, total = whole[-1]
    return int(n), int(world), float(total)


def reaches(process, name, world, total):
    """A later round than now has this world and sum."""
    begun = last(process, name)[0]

    def there():
        n, *rest = last(process, name)
        return n > begun and rest == [world, total]

    wait_until(there, 60.0, f"a round of {name}: {process.output()[-500:]}")


def test_a_killed_peer_and_a_killed_master_hurt_no_more_than_they_must(tmp_path):
    with Processes(start_peers=4, path=tmp_path) as run:

        def peer(site, value, *groups):
            return run.peer([sys.executable, str(PEER), site, value, *groups])

        a = peer("a", "1", "west=2")
        b = peer("b", "2", "west=2", "east=3")
        c = peer("c", "4", "east=3")
        d = peer("d", "8", "east=3")
        reaches(a, "west", 2, 3.0)
        reaches(d, "east", 3, 14.0)
        reaches(d, "run", 4, 15.0)
        d.kill()
        reaches(c, "east", 2, 6.0)
        reaches(a, "west", 2, 3.0)
        west = last(a, "west")[0]
        run.master.kill()
        run.start_master()
        reaches(a, "west", 2, 3.0)
        reaches(c, "east", 2, 6.0)
        reaches(b, "run", 3, 7.0)
        assert last(a, "west")[0] > west
        worlds = {x.split()[2] for x in a.output().splitlines() if x.startswith("west")}
        assert worlds == {"2"}  # no round of the west waited for, or lost, a peer
        assert all(p.running for p in (a, b, c))


def test_a_number_of_sites_that_is_none_opens_no_group():
    with Cluster(1) as cluster:
        for wrong in (1.5, "2"):
            with pytest.raises(TypeError, match="start_peers"):
                cluster.comms[0].group("x", start_peers=wrong)
        assert not open_groups(cluster.master.address)
