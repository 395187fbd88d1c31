"""The native module: tables, arrays without copies, interrupts, forks, refusals."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _native, _ops, callback
from jccl.testing import Cluster, wait_until

core = _native.core()
CODES = core.codes


@pytest.fixture
def solo():
    with Cluster(1) as cluster:
        yield cluster.comms[0].core


@pytest.fixture
def solo_comm():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


@pytest.fixture
def half_a_pair():
    """A peer whose rounds wait for a second one that never calls."""
    with Cluster(2) as cluster:
        yield cluster.comms[0]


def test_the_tables_say_what_codes_and_limits_there_are():
    assert CODES["Ok"] == 0 and CODES["Internal"] == 27 and CODES["Disputed"] == 29
    assert CODES["Banned"] == 30
    assert set(core.remedies.values()) == {
        "none",
        "retry",
        "reconnect",
        "resync",
        "fix",
        "report",
    }
    assert core.limits["leaves_max"] >= 1000
    assert "bfloat16" in core.dtypes and "bool" not in core.dtypes
    assert core.version == jccl.__version__


def test_the_stub_names_what_the_module_has():
    stub = pathlib.Path(_native.__file__).with_name("_core.pyi").read_text()
    for name in dir(core):
        if not name.startswith("_"):
            assert name in stub, f"{name} is missing in _core.pyi"


def test_handlers_newer_than_the_runtime_are_refused_with_a_cure():
    assert _native.ffi_problem() is None
    assert _native.ffi_problem((0, 1), (0, 3)) is None
    problem = _native.ffi_problem((0, 4), (0, 3))
    assert problem and "0.4" in problem and "upgrade jaxlib" in problem
    assert _native.ffi_problem((1, 0), (0, 3))


def test_a_jaxlib_below_the_supported_range_is_refused_whatever_api_it_serves():
    problem = _native.ffi_problem((0, 1), (0, 1), (0, 6, 2))
    assert problem and "0.7.2 or newer" in problem and "0.6.2" in problem
    assert _native.ffi_problem((0, 1), (0, 1), _native.OLDEST_JAXLIB) is None


def test_the_oldest_jaxlib_is_the_one_that_the_package_asks_for_and_builds_with():
    root = pathlib.Path(_native.__file__).parents[1]
    oldest = ".".join(map(str, _native.OLDEST_JAXLIB))
    assert f'"jaxlib>={oldest}"' in (root / "pyproject.toml").read_text()
    assert f'"jaxlib=={oldest}"' in (root / "xla_ext/build_backend.py").read_text()


def test_a_refusal_leaves_the_cpu_backend_and_calls_on_numpy_arrays_as_they_are():
    program = """
import jax, numpy as np
import jaxlib.version
jaxlib.version.__version__ = "0.6.2"
import jccl
from jccl.testing import Cluster
with Cluster(1) as cluster:
    comm = cluster.comms[0]
    try:
        jax.jit(lambda x: jccl.all_reduce(x, comm).value)(np.ones(3, np.float32))
    except ImportError as error:
        print(error)
    assert jax.jit(lambda x: x + 1)(np.ones(2)).tolist() == [2.0, 2.0]
    assert comm.all_reduce(np.ones(3, np.float32), op="sum").value.tolist() == [1.0] * 3
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "needs jaxlib 0.7.2 or newer, and this is 0.6.2" in ended.stdout


def test_a_machine_without_a_gpu_has_cuda_handlers_and_no_driver():
    assert core.handlers("CUDA").keys() == core.handlers().keys()
    with pytest.raises(ValueError, match="ROCM"):
        core.handlers("ROCM")
    problem = core.cuda_problem()
    assert problem == "" or "libcuda.so.1" in problem or "cuInit" in problem


def test_a_program_lowered_for_cuda_makes_the_same_calls(solo_comm):
    def program(x):
        begun = _ops.start(x, solo_comm, place=jccl.Place(passing=x), tag="a")
        return _ops.done(begun.handle, begun.passed, solo_comm, tag="a").value

    lowered = jax.jit(program).trace(jnp.ones(3)).lower(lowering_platforms=("cuda",))
    text = lowered.as_text()
    assert "@jccl_start(" in text and "@jccl_done(" in text


@pytest.mark.parametrize(
    "version, platform", [("cuda 12090", "cuda"), ("ROCm 6.2", "rocm")]
)
def test_a_gpu_is_known_by_its_maker(monkeypatch, version, platform):
    client = types.SimpleNamespace(platform_version=version)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(
        jax, "devices", lambda name: [types.SimpleNamespace(client=client)]
    )
    assert _native.default_platform() == platform


def test_the_runtimes_version_is_read_from_its_headers():
    assert _native.runtime_ffi_api_version() >= core.ffi_api_version


def test_a_source_tree_without_the_extension_names_the_cure(tmp_path):
    package = tmp_path / "jccl"
    source = pathlib.Path(_native.__file__).parent
    package.mkdir()
    for name in ("__init__.py", "_native.py"):
        shutil.copy(source / name, package / name)
    program = "from jccl import _native; _native.core()"
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "pip install -e ." in ended.stderr and "repository" in ended.stderr


def test_a_result_lands_in_the_callers_array(solo):
    data = np.arange(1000, dtype=np.float32)
    kept = data.copy()
    out = np.empty_like(data)
    place = out.ctypes.data
    result = solo.run([data], [out], op="sum")
    assert result.code == 0 and result.world == 1 and result.n == 1
    assert out.ctypes.data == place and np.array_equal(out, kept)
    assert np.array_equal(data, kept)
    assert solo.run([data], [data], op="sum").n == 2
    assert np.array_equal(data, kept)


def test_a_staged_round_may_outlive_its_input(solo):
    data = np.full(100, 3.0, np.float32)
    handle = solo.start([data], op="sum")
    data[:] = 0
    out = np.empty_like(data)
    wait_until(lambda: solo.finished(handle))
    assert solo.wait(handle, [out]).code == 0
    assert np.all(out == 3.0)
    assert solo.wait(handle, [out]).code == CODES["UnknownTag"]


def test_an_unstaged_round_holds_on_to_its_arrays(solo):
    out = np.zeros(1000, np.float32)
    handle = solo.start([np.full(1000, 2.0, np.float32)], [out])
    assert solo.wait(handle).code == 0
    assert np.all(out == 2.0)


def refused(call, *words):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_arrays_that_cannot_be_used_in_place_are_named(solo):
    good = np.zeros((4, 4), np.float32)
    sliced = good[:, ::2]
    refused(lambda: solo.run([sliced], [sliced], paths=["w"]), "'w'", "C-contiguous")
    swapped = good.astype(">f4")
    refused(lambda: solo.run([swapped], [swapped]), "leaf 0", "byte order")
    flags = good.astype(bool)
    refused(lambda: solo.run([flags], [flags]), "bool")
    frozen = good.copy()
    frozen.flags.writeable = False
    refused(lambda: solo.run([good], [frozen]), "read-only")
    refused(lambda: solo.run([good], [np.zeros(3, np.float32)]), "size")
    refused(lambda: solo.run([good], []), "1 inputs but 0 outputs")


def test_arguments_out_of_range_are_refused(solo):
    x = np.zeros(1, np.float32)
    refused(lambda: solo.run([x], [x], deadline=-1.0), "deadline")
    refused(lambda: solo.run([x], [x], op="median"), "median")
    refused(lambda: solo.run([x], [x], codec="zip"), "zip")
    refused(lambda: solo.run([x], [x], collective="scan"), "scan")
    refused(lambda: solo.run([x], [x], fingerprint="xyz"), "hex")
    refused(lambda: solo.run([x], [x], colour="red"), "colour")
    refused(lambda: core.Communicator.connect(master="a:1", shard=-1), "shard")
    refused(lambda: core.Communicator.connect(), "master")


def test_an_address_where_nobody_listens_is_a_fault_in_words():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(core.CoreError) as caught:
        core.Communicator.connect(master=address, connect_timeout=0.5)
    assert caught.value.code == CODES["MasterLost"]
    assert address in caught.value.text
    assert caught.value.args == (caught.value.code, caught.value.text)
    with pytest.raises(core.CoreError):
        core.query_status(address, timeout=0.5)


def test_abort_ends_a_wait_from_another_thread(half_a_pair):
    native = half_a_pair.core
    x = np.arange(3, dtype=np.float32)
    results = []
    thread = threading.Thread(target=lambda: results.append(native.run([x], [x])))
    thread.start()
    while thread.is_alive():  # an abort before the wait began ends nothing
        native.abort()
        thread.join(0.05)
    assert results[0].code in (CODES["Aborted"], CODES["InDoubt"])
    assert x.tolist() == [0.0, 1.0, 2.0]


def interrupt_until(done):
    """SIGINT to this process until `done`: the first may come before the wait."""

    def send():
        time.sleep(0.3)
        while not done.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            done.wait(2.0)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def expect_interrupt(call):
    done = threading.Event()
    thread = interrupt_until(done)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        try:
            call()
            for _ in range(1000):  # where Python notices the signal a little later
                time.sleep(0.001)
        finally:
            done.set()
            thread.join()
    assert time.monotonic() - begun < 30


def test_ctrl_c_ends_a_host_wait(half_a_pair):
    x = np.zeros(3, np.float32)
    expect_interrupt(lambda: half_a_pair.core.run([x], [x], deadline=50.0))


@pytest.mark.parametrize("route", callback.ROUTES)
def test_ctrl_c_ends_a_wait_inside_a_compiled_program(half_a_pair, route):
    comm = types.SimpleNamespace(registry_id=half_a_pair.registry_id, route=route)
    step = jax.jit(
        lambda x: (
            _ops.all_reduce(x, comm, tag="c", round=jccl.Round(deadline=50.0)).status
        )
    )
    compiled = step.lower(jnp.ones(3)).compile()
    expect_interrupt(lambda: compiled(jnp.ones(3)).block_until_ready())


def test_ctrl_c_ends_a_done_inside_a_compiled_program(half_a_pair):
    begun = _ops.start(
        jnp.ones(3), half_a_pair, tag="d", round=jccl.Round(deadline=50.0)
    )
    step = jax.jit(lambda h: _ops.done(h, jnp.zeros(3), half_a_pair, tag="d").status)
    compiled = step.lower(begun.handle).compile()
    expect_interrupt(lambda: compiled(begun.handle).block_until_ready())


def test_ctrl_c_ends_connect():
    with socket.socket() as silent:  # accepts into its backlog and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        expect_interrupt(
            lambda: core.Communicator.connect(master=address, connect_timeout=20.0)
        )


def test_a_wakeup_descriptor_set_before_still_hears_signals(solo):
    ours = signal.set_wakeup_fd(-1)
    before, after = socket.socketpair()
    try:
        before.setblocking(False)
        signal.set_wakeup_fd(before.fileno())
        old = signal.signal(signal.SIGUSR1, lambda *_: None)
        core.ensure_interrupts()
        os.kill(os.getpid(), signal.SIGUSR1)
        after.settimeout(10)
        assert after.recv(1) == bytes([signal.SIGUSR1])
        signal.signal(signal.SIGUSR1, old)
    finally:
        signal.set_wakeup_fd(-1)
        core.ensure_interrupts()
        assert signal.set_wakeup_fd(ours) != -1
        before.close()
        after.close()


def test_a_fork_answers_closed_and_leaves_the_parent_alone():
    program = """
import os, sys
import numpy as np
import jccl
from jccl.testing import Cluster
with Cluster(1) as cluster:
    comm = cluster.comms[0].core
    x = np.ones(3, np.float32)
    assert comm.run([x], [x]).code == 0
    pid = os.fork()
    if pid == 0:
        result = comm.run([x], [x])
        sync = comm.publish([x], [x])
        comm.abort(); comm.close()
        try:
            cluster.master.status_json()
        except jccl._native.core().CoreError as fault:
            assert fault.args[0] == result.code
        else:
            os._exit(1)
        cluster.master.stop()
        sys.stdout.write(f"{result.code} {sync.code} {result.text}\\n")
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert comm.run([x], [x]).code == 0
    print("parent ok")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    child, parent = ended.stdout.splitlines()
    closed = CODES["Closed"]
    assert child.startswith(f"{closed} {closed} ") and "fork" in child
    assert parent == "parent ok"


def test_close_is_idempotent_and_later_calls_answer_closed(solo):
    x = np.ones(2, np.float32)
    assert not solo.closed
    solo.close()
    solo.close()
    assert solo.closed
    assert solo.run([x], [x]).code == CODES["Closed"]
    assert solo.publish([x], [x]).code == CODES["Closed"]
    with pytest.raises(core.CoreError) as caught:
        solo.start([x])
    assert caught.value.code == CODES["Closed"]


def test_registry_ids_are_not_reused():
    with Cluster(1) as cluster:
        first = cluster.comms[0].core.registry_id
    with Cluster(1) as cluster:
        assert cluster.comms[0].core.registry_id > first


def test_a_master_answers_status_here_and_from_afar():
    master = core.Master.start(start_peers=1)
    try:
        here = json.loads(master.status_json())
        afar = json.loads(core.query_status(master.address))
        assert here.keys() == afar.keys()
        assert len(master.run_id) == 32
    finally:
        master.stop()
        master.stop()
    again = core.Master.start(bind=master.address)  # the port is free at once
    again.stop()


def test_a_token_protects_a_master():
    token = core.new_token()
    assert token.startswith("jccl2run.") and token != core.new_token()
    master = core.Master.start(token=token)
    try:
        assert json.loads(core.query_status(master.address, token=token))
        with pytest.raises(core.CoreError):
            core.query_status(master.address, timeout=3.0)
        comm = core.Communicator.connect(master=master.address, token=token)
        x = np.ones(4, np.float32)
        assert comm.run([x], [x]).code == 0
        comm.close()
    finally:
        master.stop()


def test_the_gil_is_free_while_a_round_waits(half_a_pair):
    x = np.zeros(2, np.float32)
    ticks = []
    waiting = threading.Thread(
        target=lambda: half_a_pair.core.run([x], [x], deadline=1.0)
    )
    waiting.start()
    while waiting.is_alive():
        ticks.append(None)
        time.sleep(0.001)
    assert len(ticks) > 20


def test_host_and_compiled_outer_steps_have_the_same_bits():
    rng = np.random.default_rng(3)
    anchor, momentum, delta = (rng.normal(size=999).astype("f4") for _ in range(3))
    ok = jnp.array([0, 1, 1, 1], jnp.int32)
    moved = _ops.outer_step(
        anchor, momentum, delta, status=ok, learning_rate=0.5, decay=0.8
    )
    core.outer_step(anchor, momentum, delta, learning_rate=0.5, momentum_decay=0.8)
    assert np.asarray(moved.anchor).tobytes() == anchor.tobytes()
    assert np.asarray(moved.momentum).tobytes() == momentum.tobytes()
    with pytest.raises(ValueError, match="delta"):
        core.outer_step(anchor, None, delta[:5].copy(), learning_rate=1.0)
