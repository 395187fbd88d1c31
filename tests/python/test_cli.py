"""The jccl command, as people and scripts use it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from jccl._round import Round
from jccl.cli import bench, explain, group
from jccl.codecs import CODECS
from jccl.testing import Cluster, Processes, wait_until

JCCL = [sys.executable, "-m", "jccl.cli"]
PEER = (
    "import os, sys, numpy as np, jccl\n"
    "with jccl.connect(deadline=60) as comm:\n"
    "    n = comm.all_reduce(np.ones(4), op='sum').value[0]\n"
    "    print('sum', n, 'of', os.environ['JCCL_PEERS'], flush=True)\n"
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("JCCL_"):
            monkeypatch.delenv(name)


def invoke(*args):
    return CliRunner().invoke(group, list(args))


def test_help_lists_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    for name in ("master", "run", "status", "bench", "doctor", "token"):
        assert name in result.output
        assert invoke(name, "--help").exit_code == 0


def test_an_unknown_command_is_a_usage_error():
    assert invoke("frobnicate").exit_code == 2


def test_run_gives_every_peer_the_run_and_prefixes_what_it_says():
    done = subprocess.run(
        [*JCCL, "run", "-n", "3", "--", sys.executable, "-c", PEER],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if "sum" in line)
    assert lines == [f"[{i}] sum 3.0 of 3" for i in range(3)]


def test_peers_of_a_run_do_not_inherit_the_name_of_one():
    done = subprocess.run(
        [*JCCL, "run", "-n", "2", "--", sys.executable, "-c", PEER],
        env={**os.environ, "JCCL_SITE": "here", "JCCL_SHARD": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 2.0") == 2


def test_run_passes_on_the_exit_code_of_a_peer_that_fails():
    program = "import os, sys; sys.exit(3 * int(os.environ['JCCL_PEER_INDEX']))"
    done = subprocess.run(
        [*JCCL, "run", "-n", "2", "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert "peer 1 ended with exit code 3" in done.stderr


def test_run_of_a_command_that_does_not_exist_says_so():
    done = subprocess.run(
        [*JCCL, "run", "--", "no-such-program"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no-such-program" in done.stderr


def test_run_kills_and_restarts_peers_until_all_end_well(tmp_path):
    # Life 0 of the killed peer hangs in a barrier that needs all; only its death and
    # the next life can let anybody finish.
    program = (
        "import os, pathlib, time, jccl\n"
        "life = int(os.environ['JCCL_PEER_LIFE'])\n"
        f"mark = pathlib.Path({str(tmp_path)!r}) / 'killed'\n"
        "if life: mark.touch()\n"
        "while not mark.exists(): time.sleep(0.05)\n"
        "print('life', life)\n"
    )
    done = subprocess.run(
        [*JCCL, "run", "-n", "2", "--kill-every", "3.0", "--seed", "1", "--"]
        + [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "killed; life 1 begins" in done.stderr
    assert "life 0" in done.stdout and "life 1" in done.stdout


def test_the_master_prints_its_address_and_ends_cleanly_on_ctrl_c():
    with Processes(start_peers=1) as run:
        assert run.master is not None
        assert f"JCCL_MASTER={run.address}" in run.master.output()
        run.master.interrupt()
        assert run.master.wait(30) == 0


def test_a_master_killed_and_restarted_keeps_its_run_and_port():
    with Processes(start_peers=1) as run:
        before, address = json.loads(run.status()), run.address
        run.master.kill()
        run.start_master()
        after = json.loads(run.status())
        assert run.address == address
        assert after["run"] == before["run"]
        assert after["epoch"] > before["epoch"]


def test_a_port_in_use_is_named():
    with Cluster(1) as cluster:
        done = subprocess.run(
            [*JCCL, "master", "--bind", cluster.master.address],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert cluster.master.address.split(":")[1] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_master_off_loopback_without_a_token_is_refused():
    done = subprocess.run(
        [*JCCL, "master", "--bind", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "token" in done.stderr and "--insecure" in done.stderr


def test_status_shows_peers_and_what_they_wait_for():
    with Cluster(2) as cluster:
        cluster.run(lambda comm, i: comm.barrier())
        handle = cluster.comms[0].start(
            np.ones(3), tag="grads", round=Round(deadline=60)
        )
        address = cluster.master.address

        def waiting():
            answer = json.loads(invoke("status", "--master", address, "--json").output)
            return [p["waiting_for"] for p in answer["peers"] if p["waiting_for"]]

        wait_until(lambda: bool(waiting()), 30, "the waiting text")
        assert "grads" in waiting()[0]
        shown = invoke("status", "--master", address)
        assert shown.exit_code == 0
        assert "member" in shown.output and "grads" in shown.output
        cluster.comms[0].abort()
        with pytest.raises(Exception, match="ABORTED"):
            handle.wait()


def test_a_site_that_keeps_the_others_waiting_is_skipped_and_status_says_so():
    with Cluster(3, profile="lan", straggler="skip", straggler_after=0.3) as cluster:
        cluster.run(lambda comm, i: comm.barrier())

        def mean(comm, i):
            return comm.all_reduce(np.full(4, float(i)), tag="grads")

        done = cluster.run(mean, cluster.comms[:2])
        assert all(one.status.world == 2 for one in done)
        answer = json.loads(cluster.master.status_json())
        assert (answer["silence_s"], answer["straggler"]) == (0.6, "skip")
        trouble = [p["trouble"] for p in answer["peers"] if p["trouble"]]
        assert trouble == ["skipped in grads"]
        shown = invoke("status", "--master", cluster.master.address)
        assert "skipped in" in " ".join(shown.output.split())
        late = cluster.comms[2].start(np.full(4, 2.0), tag="grads")

        def back():
            peers = json.loads(cluster.master.status_json())["peers"]
            return not any(p["trouble"] for p in peers)

        wait_until(back, 30, "its return")
        done = cluster.run(mean, cluster.comms[:2])
        assert all(one.status.world == 3 for one in [*done, late.wait()])


def test_status_of_an_unreachable_master_fails_with_one_line():
    done = subprocess.run(
        [*JCCL, "status", "--master", "127.0.0.1:1", "--timeout", "1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("jccl: ") and "127.0.0.1:1" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_status_without_a_master_is_a_usage_error():
    result = invoke("status")
    assert result.exit_code == 2 and "JCCL_MASTER" in result.output


@pytest.mark.parametrize("codec", ["none", "topk"])
def test_bench_measures_and_finds_nothing_wrong(codec):
    done = subprocess.run(
        [*JCCL, "bench", "-b", "1K", "-e", "4K", "-f", "2", "-n", "2"]
        + ["--codec", codec, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["size"] for row in rows] == [1024, 2048, 4096]
    for row in rows:
        assert row["wrong"] == 0 and row["peers"] == 2
        assert row["time_us"] > 0 and row["busbw_GBps"] > 0
        assert row["sent_bytes"] > 0


def test_no_codec_is_farther_off_than_bench_allows():
    for codec in CODECS:
        plan = bench.Plan(1024, 4096, 2.0, codec, "sum", 0, 1)
        with Cluster(2) as cluster:

            def measure(comm, _, plan=plan):
                return [bench.measure_size(comm, s, plan) for s in plan.sizes()]

            both = cluster.run(measure)
        assert [row["wrong"] for rows in both for row in rows] == [0] * 6, codec


def test_bench_prints_the_columns_of_nccl_tests():
    done = subprocess.run(
        [*JCCL, "bench", "-b", "64", "-e", "64", "--peers", "3"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    header = done.stdout.splitlines()[0]
    for column in (
        "size",
        "count",
        "type",
        "redop",
        "time",
        "algbw",
        "busbw",
        "#wrong",
    ):
        assert column in header


def test_bench_explains_the_plan_with_predicted_and_measured_time():
    done = subprocess.run(
        [*JCCL, "bench", "-b", "4K", "-e", "4K", "-n", "2", "--peers", "3"]
        + ["--explain", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    decision = json.loads(done.stdout)["explain"]
    assert decision["plan"] == "exchange"
    rows = {row["plan"]: row for row in decision["candidates"]}
    assert set(rows) == {"exchange", "direct", "ring"}
    for row in rows.values():
        assert row["predicted_s"] > 0 and row["measured_s"] > 0
    assert [row["plan"] for row in rows.values() if row["chosen"]] == ["exchange"]
    assert rows["exchange"]["predicted_s"] < rows["ring"]["predicted_s"]
    assert len(decision["links"]) <= 6


def test_an_explained_decision_is_shown_in_lines():
    candidates = [
        {"plan": "direct", "predicted_s": 0.002, "shares": [0, 3, 1]},
        {"plan": "exchange", "predicted_s": 0.4},
    ]
    ring = {"plan": "ring", "predicted_s": 1e-4, "order": [1, 3, 2]}
    status = {
        "links": [{"from": 1, "to": 2, "rtt_ms": 80.0, "bytes_per_s": 0}],
        "uplinks": [{"peer": 1, "bytes_per_s": 125_000_000}],
        "plans": [
            {"pinned": True, "data_bytes": 8, "candidates": [ring]},
            {
                "pinned": False,
                "data_bytes": 8,
                "encoded_bytes": 8,
                "candidates": candidates,
            },
        ],
    }
    measured = {"auto": 0.003, "direct": 1.0, "ring": 0.5}
    decision = explain.decision(status, 8, "none", measured)
    lines = explain.text(decision).splitlines()
    assert lines[0] == "# 8 B are reduced by: direct"
    words = [" ".join(line.split()[1:]) for line in lines[2:]]
    assert words == [
        "direct 2.00 ms 3.00 ms 0 75 25 % <- chosen",
        "exchange 400.00 ms - all",
        "ring 100 us 500.00 ms equal order 1 3 2",
    ]
    free = {**status["plans"][1], "any_order": True, "candidates": [ring, *candidates]}
    status["plans"].insert(0, free)
    lines = explain.text(
        explain.decision(status, 8, "none", {"fastest": 0.003, "direct": 1.0})
    ).splitlines()
    assert lines[0].endswith("by: ring (plan=fastest)") and "3.00 ms" in lines[2]
    text = explain.matrix(decision)
    assert "1 -> all" in text and "125.0 MB/s" in text and "rtt 80.00 ms" in text


def test_bench_counts_elements_that_are_wrong():
    plan = bench.Plan(4096, 4096, 2.0, "none", "sum", 0, 1)
    right = bench.contribution(1, 1000) + bench.contribution(2, 1000)
    assert bench.count_wrong(right, (1, 2), plan) == 0
    right[[3, 500]] += 0.01
    assert bench.count_wrong(right, (1, 2), plan) == 2
    assert bench.count_wrong(np.zeros(1000, np.float32), (1, 2), plan) > 900


def test_sizes_are_read_like_nccl_tests_does():
    plan = bench.Plan(1024, 4096, 2.0, "none", "sum", 0, 1)
    assert list(plan.sizes()) == [1024, 2048, 4096]
    assert invoke("bench", "-b", "many").exit_code == 2


def test_doctor_finds_this_machine_fit():
    result = invoke("doctor", "--json")
    assert result.exit_code == 0, result.output
    findings = {finding["what"]: finding for finding in json.loads(result.output)}
    assert findings["native module"]["state"] == "ok"
    assert findings["XLA FFI"]["state"] == "ok"
    assert "jax" in findings["packages"]["found"]
    assert findings["route"]["found"] == "ffi on cpu"


def test_doctor_names_a_slower_route(monkeypatch):
    monkeypatch.setenv("JCCL_ROUTE", "io_callback")
    findings = {
        one["what"]: one for one in json.loads(invoke("doctor", "--json").output)
    }
    assert findings["route"]["state"] == "warn"
    assert findings["route"]["found"] == "io_callback on cpu, by JCCL_ROUTE"


def test_doctor_names_a_master_it_cannot_reach_and_the_fix():
    result = invoke("doctor", "--master", "127.0.0.1:1", "--json")
    assert result.exit_code == 1
    master = json.loads(result.output)[-1]
    assert master["state"] == "fail" and "jccl master" in master["fix"]


def test_ctrl_c_ends_a_run_with_its_peers(tmp_path):
    mark = tmp_path / "up"
    program = (
        f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(60)"
    )
    launcher = subprocess.Popen(
        [*JCCL, "run", "-n", "1", "--", sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(mark.exists, 60, "the peer")
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(30) != 0
    finally:
        launcher.kill()
    assert Path(mark).exists()


def test_sigterm_ends_a_run_with_its_peers(tmp_path):
    mark = tmp_path / "pid"
    program = (
        "import os, pathlib, time\n"
        f"path = pathlib.Path({str(mark)!r})\n"
        "path.with_suffix('.new').write_text(str(os.getpid()))\n"
        "path.with_suffix('.new').rename(path)\n"
        "time.sleep(60)"
    )
    launcher = subprocess.Popen(
        [*JCCL, "run", "-n", "1", "--", sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(mark.exists, 60, "the peer")
        launcher.terminate()
        assert launcher.wait(30) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.read_text()), 0)
    finally:
        launcher.kill()


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["master", "--token-file", "absent"], 1, "absent can't be read"),
        (["master", "--token-file", "empty"], 1, "empty is empty"),
        (["master", "--token-file", "binary"], 1, "binary holds no token"),
        (["master", "--silence", "-1"], 2, "--silence"),
        (["master", "--start-peers", "0"], 2, "--start-peers"),
        (["status", "--master", "127.0.0.1:1", "--token-file", "empty"], 1, "is empty"),
        (["status", "--master", "nowhere"], 1, "the port is missing"),
        (["status", "--master", "10.0.0.1:29400"], 1, "no token is set"),
        (["token", "--file", "no/such/folder"], 1, "cannot write no/such/folder"),
        (["bench", "--warmup", "-1"], 2, "--warmup"),
        (["bench", "--begin", "2K", "--end", "1K"], 2, "--begin"),
        (["run", "--store", "sqlite:no/such", "--", "true"], 1, "no/such"),
    ],
)
def test_wrong_input_is_one_line_without_a_traceback(tmp_path, arguments, code, words):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xd4\x00\xff")
    done = subprocess.run(
        [*JCCL, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert words in last and "Traceback" not in done.stderr
    assert code == 2 or len(done.stderr.strip().splitlines()) == 1


def test_doctor_says_what_is_wrong_with_the_token(monkeypatch):
    monkeypatch.setenv("JCCL_TOKEN_FILE", "/no/such/file")
    result = invoke("doctor", "--master", "127.0.0.1:1", "--json")
    assert result.exit_code == 1
    master = json.loads(result.output)[-1]
    assert "/no/such/file" in master["found"] and "JCCL_TOKEN_FILE" in master["fix"]


def test_peers_of_run_join_by_a_token_that_cannot_lead(tmp_path):
    secret = tmp_path / "secret"
    assert invoke("token", "--file", str(secret)).exit_code == 0
    program = """
import os
import re
import jccl
print(os.environ["JCCL_TOKEN"].split(".")[0], "JCCL_TOKEN_FILE" in os.environ)
with jccl.connect() as comm:
    print(comm.all_reduce([1.0], op="sum").value)
"""
    done = subprocess.run(
        [*JCCL, "run", "-n", "2", "--", sys.executable, "-c", program],
        env={**os.environ, "JCCL_TOKEN_FILE": str(secret)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("jccl2 False") == 2
    assert secret.read_text().startswith("jccl2run.")
    assert secret.read_text().strip() not in done.stdout + done.stderr


def test_bench_uses_the_token_of_the_environment():
    token = invoke("token").output.strip()
    done = subprocess.run(
        [*JCCL, "bench", "-b", "4K", "-e", "4K", "-n", "1", "--json"],
        env={**os.environ, "JCCL_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["wrong"] == 0
