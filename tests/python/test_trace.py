"""`jccl trace`: clocks are put right within the error it says, and the file is what
Perfetto and JAX's profiler agree on."""

import gzip
import json
import math
import random
import threading
import time

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from jccl.cli import trace
from jccl.metrics import Meter, RunLog, clocks, reading
from jccl.testing import Cluster

# ---- clocks --------------------------------------------------------------------------


def simulated(true, rounds, seed, drift=0.0):
    """What peers with clocks that are wrong by `true` note of rounds."""
    rng, found = random.Random(seed), [{} for _ in true]
    for n in range(rounds):
        at = 1000 + 10 * n
        begun = [at + rng.uniform(0, 0.2) for _ in true]
        start = max(begun) + rng.uniform(0.01, 0.05)
        for i, wrong in enumerate(true):
            shift = wrong + drift * i * n
            heard = start + rng.uniform(0.01, 0.05)
            found[i]["t", n] = (begun[i] + shift, heard + shift)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_is_right_within_the_error_that_is_said(seed):
    true = [0.0, 3.0, -0.4, 1e4]
    found = clocks.aligned(simulated(true, 50, seed))
    for wrong, clock in zip(true, found, strict=True):
        assert abs(clock.offset + wrong) <= clock.error + 1e-9
        assert clock.error < 0.1  # much less than the 0.2 s of work between


def test_more_rounds_never_widen_the_error():
    true = [0.0, 1.0]
    few, many = (clocks.aligned(simulated(true, n, 3))[1].error for n in (2, 60))
    assert many < few


def test_a_clock_that_drifts_has_a_wider_error_and_no_nonsense():
    found = clocks.aligned(simulated([0.0, 1.0], 100, 5, drift=0.01))
    # It was wrong by 1 s first and by 2 s last.
    assert abs(found[1].offset + 1.5) < 0.1 and 0.4 < found[1].error < 0.6


def test_without_a_common_round_the_machines_clock_is_taken():
    alone = [{("t", 1): (1.0, 2.0)}, {("t", 2): (1.0, 2.0)}, {}]
    assert clocks.aligned(alone)[1:] == [clocks.Clock(0.0, math.inf)] * 2


# ---- a real run ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two peers' logs, the master's history, and a JAX profile around one round."""
    folder = tmp_path_factory.mktemp("run")
    history = folder / "history.jsonl"
    paths = [folder / f"peer{i}.jsonl" for i in range(2)]
    double = jax.jit(lambda x: x * 2)
    double(np.ones(4)).block_until_ready()
    with Cluster(2, history=str(history)) as cluster:
        logs = [RunLog(c, p) for c, p in zip(cluster.comms, paths, strict=True)]
        meters = [Meter(comm) for comm in cluster.comms]
        profiled = threading.Barrier(2)

        def program(comm, i):
            for n in range(4):
                if n == 2:
                    profiled.wait()
                    if i == 0:
                        jax.profiler.start_trace(folder / "profile")
                    profiled.wait()
                time.sleep(0.01 * ((i + n) % 2))
                with jax.profiler.TraceAnnotation(f"mine {i} {n}"):
                    comm.all_reduce(np.ones(1000, np.float32), tag="grads")
                double(np.ones(4)).block_until_ready()
                meters[i].write(n, logs[i], loss=1.0)
                if n == 2:
                    profiled.wait()
                    if i == 0:
                        jax.profiler.stop_trace()
                    profiled.wait()
            logs[i].mark("saved", number=1)
            with logs[i].span("outer step"):
                pass

        cluster.run(program)
        for log in logs:
            log.close()
    return folder, paths, history


def traced(run, *options):
    folder, paths, history = run
    out = folder / "trace.json"
    arguments = [*paths, "--history", history, "--out", out, *options]
    done = CliRunner().invoke(trace.command, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return json.loads(out.read_text()), done.output


def test_the_file_is_in_the_trace_event_format(run):
    found, said = traced(run, "--profile", run[0] / "profile")
    assert "master: " in said and said.count(" within ± ") == 3
    assert f"{len(found['traceEvents'])} events in" in said
    for event in found["traceEvents"]:
        assert event["ph"] in "XMiC" and isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["args"]
            continue
        assert event["ts"] > 1e15  # microseconds since 1970
        if event["ph"] != "C":
            assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0


def named(found, name):
    return [event for event in found["traceEvents"] if event["name"] == name]


def test_each_round_has_its_phases_on_every_peer_and_on_the_master(run):
    found, _ = traced(run)
    assert len(named(found, "READY")) == len(named(found, "COMMIT")) == 8
    assert len(named(found, "data")) == 8
    for n in range(1, 5):
        (master,) = named(found, f"round {n}: START to COMMIT")
        for peer in named(found, f"round {n}"):
            assert peer["args"]["tag"] == "grads"
            begun, ended = peer["ts"], peer["ts"] + peer["dur"]
            assert begun < master["ts"] < ended
    assert len(named(found, "saved")) == len(named(found, "outer step")) == 2
    assert len(named(found, "sent_bytes per s")) == 8


def test_a_round_lies_where_jax_profilers_trace_has_its_call(run):
    found, _ = traced(run, "--profile", run[0] / "profile")
    (mine,) = named(found, "mine 0 2")
    waits = named(found, "waits for round 3")  # the first peer's is the reference
    begun, ended = mine["ts"], mine["ts"] + mine["dur"]
    wait = min(waits, key=lambda event: event["pid"])
    slack = 1000.0  # the profiler's own begin is noted beside, not at, its zero
    assert begun - slack <= wait["ts"] and wait["ts"] + wait["dur"] <= ended + slack


def test_what_is_no_profile_is_refused(run, tmp_path):
    arguments = [str(run[1][0]), "--profile", str(tmp_path)]
    done = CliRunner().invoke(trace.command, arguments)
    assert done.exit_code == 1 and "holds no JAX profile" in done.output
    (tmp_path / "vm.xplane.pb").touch()
    with pytest.raises(reading.UnreadableError, match="stop the profile first"):
        list(trace.profiled(tmp_path))
    (tmp_path / "vm.trace.json.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(reading.UnreadableError, match="does not say when it began"):
        list(trace.profiled(tmp_path))


def test_a_file_that_is_no_run_log_ends_in_one_line(run):
    done = CliRunner().invoke(trace.command, [str(run[2])])
    assert done.exit_code == 1 and "is no run log" in done.output
