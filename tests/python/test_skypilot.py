"""examples/skypilot: its scripts run here as SkyPilot runs them there, in a shell with
the task's variables. No cloud takes part."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from jccl import _native
from tests.docs.markdown import ROOT
from tests.stress.cluster import free_port

FOLDER = ROOT / "examples" / "skypilot"
PEERS = 2
ROUNDS = 400


def task(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


class Job:
    """The `run` of a task, with its variables; those that are null have to be given."""

    def __init__(self, name, log, **given):
        own = task(name)
        wanted = {**own.get("envs", {}), **own.get("secrets", {})}
        missing = [one for one, value in wanted.items() if value is None]
        assert set(missing) <= set(given), f"{name}.yaml wants {missing}"
        self.script = own["run"]
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("JCCL_")},
            **{k: v for k, v in wanted.items() if v is not None},
            **given,
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        }
        self.log = log
        self.start()

    def start(self):
        with self.log.open("ab") as file:
            self.popen = subprocess.Popen(
                ["bash", "-c", self.script],
                cwd=ROOT,
                env=self.env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self):
        """As an instance that is gone: the whole of it."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def await_round(log, words, seconds=120.0):
    end = time.monotonic() + seconds
    while words not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < end, f"{words!r} is not in {log}: {log.read_text()}"
        time.sleep(0.1)


@pytest.fixture
def jobs():
    started = []
    yield started
    for job in started:
        job.kill()


def test_a_run_outlives_its_instances_and_its_masters_process(jobs, tmp_path):
    port, secret = free_port(), _native.core().new_token()
    token = _native.core().make_token(secret)
    master = Job(
        "master",
        tmp_path / "master.log",
        JCCL_TOKEN=secret,
        BIND=f"127.0.0.1:{port}",
        JOURNAL=str(tmp_path / "journal"),
        START_PEERS=str(PEERS),
    )
    jobs.append(master)
    run = tmp_path / "run"
    run.mkdir()
    peers = []
    for i in range(PEERS):
        listens = f"127.0.0.1:{free_port()}"
        peers.append(
            Job(
                "peer",
                tmp_path / f"peer-{i}.log",
                SITE=f"cloud-{i}",
                JCCL_MASTER=f"127.0.0.1:{port}",
                JCCL_TOKEN=token,
                JCCL_BIND=listens,
                JCCL_ADVERTISE=listens,
                JAX_PLATFORMS="cpu",
                RUN=str(run),
                ROUNDS=str(ROUNDS),
            )
        )
        jobs.append(peers[-1])
    checkpoints = run / "checkpoints"
    end = time.monotonic() + 120
    while not (checkpoints.exists() and any(checkpoints.iterdir())):
        assert time.monotonic() < end, peers[0].log.read_text()
        time.sleep(0.1)
    peers[0].kill()  # preempted, and started elsewhere
    peers[0].start()
    served = subprocess.run(
        ["pgrep", "-s", str(master.popen.pid), "-f", "jccl master"],
        capture_output=True,
        text=True,
        check=True,
    )
    os.kill(int(served.stdout.split()[-1]), signal.SIGKILL)  # its process alone
    for peer in peers:
        assert peer.popen.wait(240) == 0, peer.log.read_text()
    ends = {(run / f"done-cloud-{i}").read_text() for i in range(PEERS)}
    assert len(ends) == 1 and f"round {ROUNDS}:" in ends.pop()
    assert master.log.read_text().count("JCCL_MASTER=") == 2  # it was started again


@pytest.mark.parametrize("code, ends", [(0, 0), (143, 0), (1, 1), (137, 137)])
def test_a_peer_that_was_asked_to_leave_is_not_started_again(tmp_path, code, ends):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JCCL_ADVERTISE": "127.0.0.1:1"}
    env |= {"SITE": "a", "RUN": "r", "ROUNDS": "1"}
    done = subprocess.run(["bash", "-c", task("peer")["run"]], env=env, check=False)
    assert done.returncode == ends


def test_the_tasks_say_where_peers_are_found():
    master, peer = task("master"), task("peer")
    assert f":{master['resources']['ports']}" in master["envs"]["BIND"]
    assert f":{peer['resources']['ports']}" in peer["envs"]["JCCL_BIND"]
    assert f"$address:{peer['resources']['ports']}" in peer["run"]
    assert peer["envs"]["RUN"] in peer["file_mounts"]
    assert not master["resources"]["use_spot"] and peer["resources"]["use_spot"]


def test_a_peer_without_a_public_address_only_dials_out(tmp_path):
    """The cloud's answers come from a `curl` of the test: AWS's, GCP's, and none."""
    script = task("peer")["run"].replace(
        "python examples/slurm/train.py", 'echo "$JCCL_BIND" "${JCCL_ADVERTISE:-}" #'
    )
    curl = tmp_path / "curl"
    for answers, said in {
        'case "$*" in *public-ipv4*) echo 198.51.100.4;; *token*) echo t;; esac': (
            "0.0.0.0:29500 198.51.100.4:29500"
        ),
        'case "$*" in *external-ip*) echo 198.51.100.5;; *) exit 22;; esac': (
            "0.0.0.0:29500 198.51.100.5:29500"
        ),
        "exit 7": "none ",
    }.items():
        curl.write_text(f"#!/bin/sh\n{answers}\n")
        curl.chmod(0o755)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JCCL_BIND": "0.0.0.0:29500"}
        env |= {"SITE": "a", "RUN": "r", "ROUNDS": "1"}
        out = subprocess.run(
            ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
        )
        assert out.stdout == said + "\n"
