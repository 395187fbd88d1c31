"""`jccl launch` over a real sshd on loopback, one for each host, on its own port."""

import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from jccl.cli import group, hosts, launch, remote
from jccl.testing import wait_until
from tests.standby.etcd import free_ports

SLOW_S = 150  # importing JAX takes long on a busy machine
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd: install openssh-server")


def alive(pattern):
    """Processes that have this in their command line."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        if re.search(pattern, " ".join(one.info["cmdline"] or ())):
            found.append(one.pid)
    return found


class Sshd:
    """Of one host; `kill` ends it and all that was started through it."""

    def __init__(self, folder, port):
        self.port = port
        config = folder / f"sshd-{port}"
        config.write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where it may do nothing
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stderr=(folder / f"sshd-{port}.log").open("wb"),
        )

    def kill(self):
        below = psutil.Process(self.process.pid).children(recursive=True)
        for one in (*below, self.process):
            one.kill()
        self.process.wait()


class Machines:
    """Hosts called a, b, c, …, and the file that names them."""

    def __init__(self, folder, count):
        self.folder = folder
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name]
            subprocess.run(key, cwd=folder, check=True)
        public = " ".join((folder / "host.pub").read_text().split()[:2])
        ports = free_ports(count + 1)
        lines = [f"[127.0.0.1]:{port} {public}\n" for port in ports[:count]]
        (folder / "known").write_text("".join(lines))
        self.master = f"127.0.0.1:{ports[count]}"
        self.sshd = {
            "abcdef"[i]: Sshd(folder, port) for i, port in enumerate(ports[:count])
        }
        for one in self.sshd.values():
            wait_until(lambda one=one: self.answers(one), 30, "sshd")

    def answers(self, sshd):
        argv = ["ssh", *self.options(sshd), *self.target(), "true"]
        return subprocess.run(argv, capture_output=True).returncode == 0

    def options(self, sshd):
        own = ["IdentitiesOnly=yes", f"UserKnownHostsFile={self.folder / 'known'}"]
        options = [part for one in own for part in ("-o", one)]
        key = str(self.folder / "user")
        return ["-F", "none", "-p", str(sshd.port), "-i", key, *options]

    def target(self):
        return [f"{getpass.getuser()}@127.0.0.1"]

    def place(self, name):
        options = json.dumps(self.options(self.sshd[name]))
        env = f"env = {{ PATH = {json.dumps(self.path())} }}"
        return f"ssh = '{self.target()[0]}'\noptions = {options}\n{env}\n"

    def path(self):
        return f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def file(self, names, master=""):
        path = self.folder / "hosts.toml"
        master = self.place(master) if master else ""
        text = f"[master]\naddress = '{self.master}'\nbind = '{self.master}'\n{master}"
        for name in names:
            folder = f"folder = '{self.folder}'\n"
            text += f"[[host]]\nname = '{name}'\n{folder}{self.place(name)}"
        path.write_text(text)
        return str(path)

    def launch(self, file, *argv, record="", **env):
        options = ["--record", str(record)] if record else []
        return subprocess.Popen(
            [sys.executable, "-m", "jccl.cli", "launch", *options, file, "--", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env},
        )

    def close(self):
        for one in self.sshd.values():
            if one.process.poll() is None:
                one.kill()


@pytest.fixture
def machines(tmp_path):
    made = []

    def make(count):
        made.append(Machines(tmp_path, count))
        return made[-1]

    yield make
    for one in made:
        one.close()


# Each peer says that it has joined, and reduces until a file says that it is over.
PROGRAM = """
import os, pathlib, sys
import jccl
with jccl.connect() as comm:
    rounds, over = 0, 0.0
    while not over:
        mine = float(pathlib.Path("over").exists())
        result = comm.all_reduce([1.0, mine], op="sum", round=jccl.Round(deadline=150))
        rounds, (count, over) = rounds + 1, map(float, result.value)
        pathlib.Path(f"rounds-{comm.site}").write_text(f"{rounds} {result.world}")
    if "JCCL_RECORD" in os.environ:
        print("recorded", comm.record("a drill"))
    print("over", comm.site, os.environ["JCCL_PEER_INDEX"], int(count))
"""


def progress(folder, name):
    try:
        rounds, world = (folder / f"rounds-{name}").read_text().split()
    except (OSError, ValueError):  # not there yet, or half written
        return 0, 0
    return int(rounds), int(world)


@pytest.mark.parametrize("at", ["here", "away"])
@needs_sshd
@pytest.mark.timeout(400)
def test_hosts_train_together_and_one_that_dies_is_named(machines, tmp_path, at):
    world = machines(3)
    (tmp_path / "peer.py").write_text(PROGRAM)
    file = world.file("abc", master="a" if at == "away" else "")
    folder = tmp_path / "recordings"
    process = world.launch(
        file, sys.executable, "peer.py", record=folder, JAX_PLATFORMS="cpu"
    )
    try:
        wait_until(
            lambda: process.poll() is not None or progress(tmp_path, "a")[1] == 3,
            SLOW_S,
            "a round of three",
        )
        assert process.poll() is None, process.stdout.read()
        # Neither of the run's secret nor of a token does anybody read here.
        assert not alive(r"jccl2(run)?\.\w")
        world.sshd["c"].kill()
        wait_until(lambda: progress(tmp_path, "a")[1] == 2, 60, "a round of two")
        (tmp_path / "over").touch()
        said = process.communicate(timeout=SLOW_S)[0]
    finally:
        process.kill()
    assert process.returncode == remote.LOST, said
    assert f"jccl launch: c: ssh can't reach {world.target()[0]}, or lost it" in said
    assert "[a] over a 0 2\n" in said and "[b] over b 1 2\n" in said, said
    assert said.count(f"recorded {folder}/jccl-") == 2, said


SLEEPER = "import sys, time; print('up', flush=True); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@needs_sshd
@pytest.mark.timeout(400)
def test_what_runs_on_hosts_ends_with_the_launcher(machines, tmp_path, number):
    world, mark = machines(2), f"mark-{tmp_path.name}-{number}"
    process = world.launch(world.file("ab"), sys.executable, "-c", SLEEPER, mark)
    try:
        for _ in range(2):
            while not process.stdout.readline().endswith("up\n"):
                assert process.poll() is None
        process.send_signal(number)
        process.wait(SLOW_S)
    finally:
        process.kill()
    wait_until(lambda: not alive(mark), 60, f"the end of {alive(mark)}")


@needs_sshd
def test_exit_codes_are_those_of_the_peers(machines):
    world = machines(2)
    fails = "import os, sys; sys.exit(7 * (os.environ['JCCL_SITE'] == 'b'))"
    process = world.launch(world.file("ab"), sys.executable, "-c", fails)
    said = process.communicate(timeout=SLOW_S)[0]
    assert process.returncode == 7, said
    assert f"b ({world.target()[0]}) ended with exit code 7" in said
    process = world.launch(world.file("ab"), "no-such-program")
    said = process.communicate(timeout=SLOW_S)[0]
    assert process.returncode == 127 and "[a] " in said, said


# ---- without ssh ---------------------------------------------------------------------


TEXTS = st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=20)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.from_regex(r"J_[A-Z]{1,5}", fullmatch=True), TEXTS))
def test_a_process_gets_the_environment_that_was_meant(env):
    command = remote.ssh_command("host", [], [sys.executable, "-c", SHOWS])[-1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", command], **pipes) as ran:
        ran.stdin.write(remote.environment_line(env).encode())
        ran.stdin.flush()  # and not closed: that would end the process
        assert json.loads(ran.stdout.readline()) == env


SHOWS = (
    "import json, os; "
    "print(json.dumps({k: v for k, v in os.environ.items() if k[:2] == 'J_'}))"
)


@pytest.mark.parametrize("env", [{"A": "1\n2"}, {"A;B": "1"}, {"": "1"}, {"1": "1"}])
def test_what_can_be_no_line_of_the_environment_is_refused(env):
    with pytest.raises(Exception, match="has more than one line|is no name of"):
        remote.environment_line(env)


def test_a_master_on_another_host_records_there():
    place = hosts.Place(ssh="m")
    master = hosts.Master("m:29400", "0.0.0.0:29400", "memory:", place)
    away = launch.RemoteMaster(master, "", 2, "/var/log/jccl")
    assert away.argv_of(0)[-2:] == ["--record", "/var/log/jccl"]
    assert "--record" not in launch.RemoteMaster(master, "", 2, "").argv_of(0)


def test_a_host_has_what_stands_in_its_table_and_defaults(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(
        "[master]\naddress = 'm.example:29400'\n"
        "[[host]]\nssh = 'me@paris'\nmaster = '10.0.0.1:1'\n"
        "[[host]]\nname = 'rome'\noptions = ['-p', '22']\nenv = { A = 'b' }\n"
    )
    plan = hosts.read(path)
    assert plan.master.bind == "0.0.0.0:29400" and plan.master.place is None
    paris, rome = plan.hosts
    assert (paris.name, paris.place.ssh, paris.master) == ("me@paris",) * 2 + (
        "10.0.0.1:1",
    )
    assert (rome.place.ssh, rome.master) == ("rome", "m.example:29400")
    assert rome.place.options == ("-p", "22") and rome.place.env == {"A": "b"}


HOST = "[[host]]\nname = 'a'\n"
MASTER = "[master]\naddress = 'm:1'\n"


@pytest.mark.parametrize(
    "text, why",
    [
        ("x", "can't be read"),
        (HOST, r"\[master\] names no address"),
        (MASTER, "names no host"),
        (MASTER + HOST + HOST, "two hosts are called a"),
        (
            MASTER + "port = 1\n" + HOST,
            r"\[master\] has the unknown key port; known: address",
        ),
        (MASTER + HOST + "options = '-p 22'\n", r"\[\[host\]\] a: options must be a"),
        (MASTER + HOST + "options = [22]\n", "options and env must hold strings only"),
        (MASTER + HOST + "ssh = '-oProxyCommand=x'\n", "is not a host"),
        (MASTER + "[[host]]\n", "its name \\(or ssh, if it has no name\\)"),
        (MASTER + f"[[host]]\nname = '{'é' * 33}'\n", "1 to 64 printable bytes"),
    ],
)
def test_a_mistake_in_the_file_is_said(tmp_path, text, why):
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    with pytest.raises(Exception, match=why):
        hosts.read(path)
    said = CliRunner().invoke(group, ["launch", str(path), "--", "true"])
    assert said.exit_code == 1 and str(path) in said.output
