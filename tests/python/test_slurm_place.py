"""A task of Slurm finds its place in the environment (tests/slurm has a real Slurm)."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jccl
from jccl import _slurm, settings
from jccl.settings import connect_options
from jccl.testing import Cluster

TASK = {
    "SLURM_CLUSTER_NAME": "alps",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "n[07-09,12],gpu1",
    "SLURM_PROCID": "3",
}
GIVEN = dict.fromkeys(
    ("master", "site", "group", "shard", "shards", "bind", "advertise", "start_peers")
) | {
    "key_file": None,
    "insecure": None,
    "io_threads": None,
    "max_rate": None,
    "day_bytes": None,
    "deadline": None,
    "record": None,
    "record_on_signal": None,
}


@pytest.fixture
def task(monkeypatch):
    """Sets the environment of a task, with changes; None takes a variable away."""
    for name in (*TASK, "SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_HET_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("JCCL_MASTER", "JCCL_SITE", "JCCL_SHARDS", "JCCL_RUN_PID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "_NAMED", itertools.count(1))

    def place(**changes):
        for name, value in {**TASK, **changes}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return place


def options(**given):
    return connect_options({**GIVEN, **given})


# ---- lists of nodes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("a,b[2-3],c-x.org", ["a", "b2", "b3", "c-x.org"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ],
)
def test_a_list_of_nodes_is_spelt_out(text, hosts):
    assert list(_slurm.nodes(text)) == hosts


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,5}[a-z]", fullmatch=True)
RANGES = st.tuples(st.integers(0, 300), st.integers(0, 30), st.integers(1, 4))


@given(st.lists(st.tuples(NAMES, st.lists(RANGES, max_size=3)), min_size=1, max_size=4))
def test_a_list_is_what_it_was_made_of(groups):
    text, hosts = [], []
    for name, ranges in groups:
        parts = []
        for first, more, width in ranges:
            numbers = [str(n).zfill(width) for n in range(first, first + more + 1)]
            parts.append(numbers[0] if not more else f"{numbers[0]}-{first + more}")
            hosts += [name + number for number in numbers]
        text.append(f"{name}[{','.join(parts)}]" if parts else name)
        hosts += [] if parts else [name]
    assert list(_slurm.nodes(",".join(text))) == hosts


@given(st.text(st.sampled_from("n0129[]-, x"), max_size=12))
def test_what_is_no_list_is_refused_and_no_host_has_its_signs(text):
    try:
        hosts = list(itertools.islice(_slurm.nodes(text), 100))
    except ValueError:
        return
    assert hosts and all(re.fullmatch(r"[nx0-9-]+", host) for host in hosts), hosts


@pytest.mark.parametrize(
    "text", ["", " ", "n[", "n]", "n[]", "n[1-]", "n[a]", "n[3-1]", "n[[1]]", ",", "a,"]
)
def test_a_broken_list_is_refused(text):
    with pytest.raises(ValueError):
        list(_slurm.nodes(text))


def test_a_huge_range_costs_what_is_taken_of_it():
    assert next(_slurm.nodes("n[1-999999999999]")) == "n1"


# ---- a task's place ------------------------------------------------------------------


def test_a_task_is_named_by_its_job_and_rank_and_finds_the_master_on_the_first_node(
    task,
):
    task()
    found = options()
    assert found["master"] == "n07:29400"
    assert (found["site"], found["shard"], found["shards"]) == ("alps-4711-3", 0, 1)


def test_of_a_heterogeneous_job_the_master_is_with_the_first_component(task):
    task(SLURM_JOB_NODELIST="cpu[1-2]", SLURM_JOB_NODELIST_HET_GROUP_0="gpu[3-4]")
    assert options()["master"] == "gpu3:29400"


def test_a_second_communicator_of_a_task_has_another_name(task):
    task()
    assert [options()["site"] for _ in range(2)] == ["alps-4711-3", "alps-4711-3-2"]


def test_arguments_and_jccls_own_variables_win(task, monkeypatch):
    task()
    found = options(master="there:1", site="eu")
    assert (found["master"], found["site"]) == ("there:1", "eu")
    monkeypatch.setenv("JCCL_MASTER", "here:2")
    monkeypatch.setenv("JCCL_SITE", "us")
    found = options()
    assert (found["master"], found["site"]) == ("here:2", "us")
    assert options(site="eu")["site"] == "eu"


def test_who_names_everything_needs_no_variable_of_slurm(task):
    task(SLURM_JOB_NODELIST=None, SLURM_CLUSTER_NAME=None, SLURM_PROCID=None)
    assert options(master="there:1", site="eu")["site"] == "eu"


def test_a_site_of_several_shards_is_named_by_its_user(task):
    task()
    assert options(shards=2)["site"] == ""


def test_peers_of_jccl_run_in_a_job_are_no_tasks(task, monkeypatch):
    task()
    monkeypatch.setenv("JCCL_RUN_PID", "1")  # none of the processes that start us
    monkeypatch.setenv("JCCL_MASTER", "127.0.0.1:2")
    assert options()["site"] == ""


@pytest.mark.parametrize(
    "name", ["SLURM_CLUSTER_NAME", "SLURM_PROCID", "SLURM_JOB_NODELIST"]
)
def test_a_variable_that_is_missing_is_named(task, name):
    task(**{name: None})
    with pytest.raises(jccl.InvalidError, match=f"job 4711, and {name} is missing"):
        options()


def test_a_list_that_names_no_node_is_said(task):
    task(SLURM_JOB_NODELIST="n[3-")
    with pytest.raises(jccl.InvalidError, match=r"SLURM_JOB_NODELIST='n\[3-' names no"):
        options()


def test_a_batch_script_is_no_task_and_is_told_of_srun(task):
    task(SLURM_STEP_ID=None)
    with pytest.raises(jccl.InvalidError, match="in this Slurm job, with srun"):
        options()
    assert options(master="there:1")["site"] == ""


def test_outside_slurm_nothing_is_said_of_it(task):
    task(SLURM_STEP_ID=None, SLURM_JOB_ID=None)
    with pytest.raises(jccl.InvalidError) as refused:
        options()
    assert "Slurm" not in str(refused.value)


def test_peers_of_one_process_in_a_task_are_different_sites(task):
    task()
    with Cluster(2) as cluster:
        sums = cluster.run(lambda comm, i: comm.all_reduce(1.0 + i, op="sum").value)
    assert [float(one) for one in sums] == [3.0, 3.0]
