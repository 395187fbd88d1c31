"""The host API against a real master: values, faults in words, and closing."""

import contextlib
import dataclasses
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jccl
from jccl import _native
from jccl.settings import read_token
from jccl.testing import Cluster, environment, wait_until
from tests.python.aborting import kept_aborting


@pytest.fixture
def pair():
    with Cluster(2) as cluster:
        yield cluster


def test_all_reduce_of_numpy_gives_every_peer_the_same_mean(pair):
    def program(comm, index):
        return comm.all_reduce(np.full(1000, float(index), np.float32))

    results = pair.run(program)
    for result in results:
        assert result.value.dtype == np.float32
        assert np.all(result.value == 0.5)
        assert result.world == 2 and result.attempts >= 1
        assert len(result.contributors) == 2
        assert result.sent_bytes > 0


def test_a_pytree_keeps_its_structure_and_jax_leaves_stay_jax(pair):
    tree = {"a": jnp.arange(3.0), "b": (np.arange(4, dtype=np.int32), np.float64(2))}

    def program(comm, index):
        return comm.all_reduce(tree, op="sum").value

    for value in pair.run(program):
        assert isinstance(value["a"], jax.Array)
        assert isinstance(value["b"][0], np.ndarray)
        assert value["b"][0].dtype == np.int32
        assert value["a"].tolist() == [0.0, 2.0, 4.0]
        assert value["b"][0].tolist() == [0, 2, 4, 6]
        assert value["b"][1] == 4.0 and value["b"][1].shape == ()


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.uint32]
)
def test_every_dtype_travels_as_it_is(pair, dtype):
    def program(comm, index):
        return comm.all_reduce(np.arange(7).astype(dtype), op="sum").value

    for value in pair.run(program):
        assert value.dtype == dtype
        assert value.astype(np.float64).tolist() == [2.0 * i for i in range(7)]


def test_out_receives_the_result_in_place(pair):
    def program(comm, index):
        x = np.full(5000, float(index + 1), np.float32)
        before = x.ctypes.data
        value = comm.all_reduce(x, op="sum", place=jccl.Place(out=x)).value
        return value is x and x.ctypes.data == before and np.all(x == 3.0)

    assert pair.run(program) == [True, True]


def test_an_out_that_does_not_fit_is_refused_before_anything_is_sent(pair):
    with pytest.raises(ValueError, match="out of leaf 'w'"):
        pair.comms[0].all_reduce(
            {"w": np.zeros(3, np.float32)},
            place=jccl.Place(out={"w": np.zeros(4, np.float32)}),
        )


def test_int8_stays_within_its_documented_error_and_is_equal_everywhere(pair):
    x = np.random.default_rng(0).normal(size=(2, 5000)).astype(np.float32)

    def program(comm, index):
        return comm.all_reduce(x[index], codec=jccl.Int8()).value

    first, second = pair.run(program)
    assert first.tobytes() == second.tobytes()
    bound = 2 * np.abs(x).max() / 254
    assert np.abs(first - x.mean(0)).max() <= bound


def test_the_other_collectives(pair):
    def program(comm, index):
        gathered = comm.all_gather(np.array([index], np.int32), slots=3, tag="g")
        part = comm.reduce_scatter(np.arange(10, dtype=np.float32), op="sum", tag="s")
        given = comm.broadcast(np.full(3, float(index)), root=index == 1, tag="b").value
        comm.barrier()
        return gathered, part, given.tolist()

    results = pair.run(program)
    for gathered, _, given in results:
        assert sorted(gathered.value[:2, 0].tolist()) == [0, 1]
        assert gathered.value[2, 0] == 0
        assert given == [1.0, 1.0, 1.0]
    shares = sorted(
        ((part.first, part.value) for _, part, _ in results), key=lambda s: s[0]
    )
    assert np.concatenate([v for _, v in shares]).tolist() == [
        2.0 * i for i in range(10)
    ]


def test_start_and_wait_let_many_tags_fly_at_once(pair):
    def program(comm, index):
        handles = [
            comm.start(np.full(100, float(i), np.float32), op="sum", tag=f"t{i}")
            for i in range(8)
        ]
        return [handle.wait().value[0] for handle in handles]

    assert pair.run(program) == [[2.0 * i for i in range(8)]] * 2


def test_a_handle_can_be_tested_and_is_waited_for_once(pair):
    def program(comm, index):
        handle = comm.start(np.ones(3, np.float32), tag="once")
        wait_until(handle.test, 30, "the round")
        handle.wait()
        with pytest.raises(jccl.UnknownTagError):
            handle.wait()

    pair.run(program)


def test_a_tag_in_flight_is_refused_at_the_start_of_the_second_call(pair):
    comm = pair.comms[0]
    handle = comm.start(
        np.ones(3, np.float32), tag="busy", round=jccl.Round(deadline=30)
    )
    with pytest.raises(jccl.BusyTagError, match="busy"):
        comm.start(np.ones(3, np.float32), tag="busy")
    comm.abort()
    with pytest.raises(jccl.AbortedError):
        handle.wait()


def test_a_leaf_of_a_dtype_that_cannot_travel_is_named(pair):
    tree = {"layer": {"mask": np.zeros(3, bool)}}
    with pytest.raises(TypeError, match=r"layer/mask.*bool"):
        pair.comms[0].all_reduce(tree)
    with pytest.raises(TypeError, match="key"):
        pair.comms[0].all_reduce({"key": jax.random.key(0)})


def test_an_unknown_option_is_refused(pair):
    with pytest.raises(TypeError, match="colour"):
        pair.comms[0].all_reduce(np.ones(3), colour="red")


def test_peers_that_disagree_learn_who_sent_what(pair):
    def program(comm, index):
        with pytest.raises(jccl.MismatchError) as caught:
            comm.all_reduce(
                {"w": np.zeros(3 + index, np.float32)}, round=jccl.Round(deadline=30)
            )
        return str(caught.value)

    for text in pair.run(program):
        assert "w" in text and "3" in text and "4" in text


@pytest.mark.parametrize("in_jit", [False, True])
def test_equal_counts_in_other_shapes_are_a_mismatch(pair, in_jit):
    def program(comm, index):
        x = jnp.zeros((2, 8) if index else (8, 2))
        if in_jit:
            step = jax.jit(
                lambda x: jccl.all_reduce(x, comm, round=jccl.Round(deadline=30)).status
            )
            assert step(x)[0] == jccl.Code.MISMATCH
            return comm.last_fault()
        with pytest.raises(jccl.MismatchError) as caught:
            comm.all_reduce(np.asarray(x), round=jccl.Round(deadline=30))
        return caught.value.text

    for text in pair.run(program):
        assert "f32[2,8]" in text and "f32[8,2]" in text


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan")])
def test_a_deadline_that_is_no_time_is_refused(pair, deadline):
    comm = pair.comms[0]
    with pytest.raises(ValueError, match="above 0"):
        comm.all_reduce(np.ones(3), round=jccl.Round(deadline=deadline))
    with pytest.raises(ValueError, match="above 0"):
        comm.sync_state(np.ones(3), deadline=deadline)
    with pytest.raises(ValueError, match="above 0"):
        jccl.connect(pair.master.address, deadline=deadline)


def test_options_that_are_no_text_are_refused_by_name(pair):
    with pytest.raises(TypeError, match="tag must be a string, not int"):
        pair.comms[0].all_reduce(np.ones(3), tag=3)
    with pytest.raises(TypeError, match="master must be a string, not int"):
        jccl.connect(29400)


@pytest.mark.parametrize(
    "held, words", [(None, "can't be read"), (b"\n", "is empty"), (b"\xff", "no token")]
)
def test_a_token_file_without_a_token_is_refused(tmp_path, held, words):
    path = tmp_path / "token"
    if held is not None:
        path.write_bytes(held)
    with pytest.raises(jccl.Error, match=words):
        jccl.connect("127.0.0.1:1", security=jccl.Security(token_file=path))


@pytest.mark.parametrize("rights", [0o640, 0o604, 0o644])
def test_a_token_file_that_others_can_read_is_refused(tmp_path, rights):
    path = tmp_path / "token"
    path.write_text(_native.core().new_token())
    path.chmod(rights)
    with pytest.raises(jccl.AuthError, match="chmod 600") as caught:
        jccl.connect("127.0.0.1:1", security=jccl.Security(token_file=path))
    assert path.read_text() not in str(caught.value)
    path.chmod(0o600)
    assert read_token(None, path) == path.read_text()


def test_a_missing_token_is_told_at_once():
    token = _native.core().new_token()
    master = _native.core().Master.start(token=token)
    try:
        with pytest.raises(jccl.AuthError, match="requires a token"):
            jccl.connect(master.address)
        with pytest.raises(_native.core().CoreError) as caught:
            _native.core().query_status(master.address)
        assert caught.value.args[0] == jccl.Code.AUTH
    finally:
        master.stop()


def test_a_deadline_says_who_was_waited_for(pair):
    pair.run(lambda comm, index: comm.barrier())
    with pytest.raises(jccl.DeadlineError) as caught:
        pair.comms[0].all_reduce(np.ones(3), round=jccl.Round(deadline=0.5))
    sites = pair.comms[0].attributes().sites
    assert len([site for site in sites if site in caught.value.text]) == 1
    assert caught.value.remedy == "retry"


def _fails(comm, index, how, collective):
    """The output of a call on peer `index` that fails `how`, and its fault."""
    out = {"w": np.full(500, -7.0, np.float32)}
    tree = {"w": np.full(500, 3.0, np.float32)}
    options = {"tag": f"{how} {collective}"}
    if how == "mismatch":
        options["codec"] = "bf16" if index else None
    if how == "empty":
        options["weight"] = 0.0
    if how == "deadline":
        options["round"] = jccl.Round(deadline=0.2)
    if collective == "broadcast":
        options.pop("weight", None)
        options["root"] = how != "empty"
    call = comm.broadcast if collective == "broadcast" else comm.all_reduce
    meanwhile = kept_aborting(comm) if how == "aborted" else contextlib.nullcontext()
    with meanwhile, pytest.raises(jccl.Error) as caught:
        call(tree, place=jccl.Place(out=out), **options)
    assert np.all(tree["w"] == 3.0)
    return out["w"], caught.value


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
@pytest.mark.parametrize("how", ["mismatch", "empty", "deadline", "aborted"])
def test_a_call_that_fails_leaves_its_out_as_it_was(pair, how, collective):
    def program(comm, index):
        return _fails(comm, index, how, collective)

    pair.run(lambda comm, index: comm.barrier())
    alone = how in ("deadline", "aborted")
    ends = [program(pair.comms[0], 0)] if alone else pair.run(program)
    for out, fault in ends:
        assert fault.code == jccl.Code[how.upper()]
        assert np.all(out == -7.0)


def test_a_handle_of_a_round_that_failed_shows_no_value(pair):
    pair.run(lambda comm, index: comm.barrier())
    handle = pair.comms[0].start(np.ones(3), round=jccl.Round(deadline=0.2))
    with pytest.raises(jccl.DeadlineError) as caught:
        handle.wait()
    assert caught.value.result.value is None


def test_nan_leaves_its_peer_out_and_its_call_raises_after_the_round(pair):
    bad = {"w": np.array([1.0, np.nan], np.float32)}

    def program(comm, index):
        if index == 0:
            with pytest.raises(jccl.GuardError, match="w") as caught:
                comm.all_reduce(bad)
            return caught.value.result.value["w"]
        return comm.all_reduce({"w": np.full(2, 4.0, np.float32)}).value["w"]

    for value in pair.run(program):
        assert value.tolist() == [4.0, 4.0]


def test_use_after_close_is_an_error_that_says_so(pair):
    comm = pair.join()
    comm.close()
    comm.close()
    assert comm.closed
    with pytest.raises(jccl.ClosedError):
        comm.all_reduce(np.ones(3))
    with pytest.raises(jccl.ClosedError):
        comm.start(np.ones(3))


def test_the_functions_work_on_arrays_and_on_traced_values_alike(pair):
    def program(comm, index):
        x = jnp.full(8, float(index), jnp.float32)
        outside = jccl.all_reduce(x, comm, op="sum", tag="f")
        inside = jax.jit(
            lambda x: dataclasses.replace(
                jccl.all_reduce(x, comm, op="sum", tag="f"), token=None
            )
        )(x)
        jccl.check(inside)
        return outside.value.tolist() == inside.value.tolist() == [1.0] * 8

    assert pair.run(program) == [True, True]


def test_abort_from_another_thread_ends_a_wait(pair):
    comm = pair.comms[0]
    faults = []

    def waits():
        try:
            comm.all_reduce(np.ones(3), round=jccl.Round(deadline=60))
        except jccl.Error as fault:
            faults.append(fault)

    thread = threading.Thread(target=waits)
    thread.start()
    wait_until(lambda: comm.waiting_for() != "", 30, "the wait")
    comm.abort()
    thread.join(30)
    assert [type(fault) for fault in faults] == [jccl.AbortedError]


def test_connect_takes_its_defaults_from_the_environment(pair):
    values = {"JCCL_MASTER": pair.master.address, "JCCL_SITE": "lab"}
    with environment(**values), jccl.connect() as comm:
        assert comm.attributes().run_id == pair.master.run_id


def test_connect_without_a_master_says_what_to_do(monkeypatch):
    monkeypatch.delenv("JCCL_MASTER", raising=False)
    with pytest.raises(jccl.InvalidError, match="JCCL_MASTER"):
        jccl.connect()


def test_an_environment_value_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("JCCL_DEADLINE", "soon")
    with pytest.raises(ValueError, match="JCCL_DEADLINE='soon'"):
        jccl.connect("127.0.0.1:1")


def test_an_unreachable_master_is_named_with_the_remedy():
    with pytest.raises(jccl.MasterLostError, match=r"127\.0\.0\.1:1") as caught:
        jccl.connect("127.0.0.1:1", waits=jccl.Waits(connect_timeout=0.5))
    assert caught.value.remedy == "reconnect"


def test_a_lone_peer_gets_its_own_values_back():
    with Cluster(1) as cluster:
        result = cluster.comms[0].all_reduce(np.arange(4.0))
        assert result.value.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert result.world == 1


def test_fewer_elements_than_peers():
    with Cluster(3) as cluster:
        values = cluster.run(
            lambda comm, i: comm.all_reduce(np.array([1.0 + i], np.float32)).value
        )
        assert [v.tolist() for v in values] == [[2.0]] * 3


def test_integer_mean_truncates_like_c(pair):
    values = pair.run(
        lambda comm, i: comm.all_reduce(np.array([-3 + 2 * i, 2 + i], np.int32)).value
    )
    assert [v.tolist() for v in values] == [[-2, 2]] * 2
