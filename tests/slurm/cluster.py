"""A real Slurm of several nodes on one machine (root): munged, slurmctld, and a slurmd
for each node in its own network, UTS, mount and PID namespaces.

    10.78.0.254  controller: bridge, munged, slurmctld, and the commands that tests run
    10.78.0.1…   n1, n2, …: slurmd and what it starts

All that a node runs is below the first process of its PID namespace, so killing that
one is a power cut. Nothing is left when the first processes are gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from jccl.testing import wait_until

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare", "nsenter")
SUBNET = "10.78.0."
CONTROLLER = "controller"
READY_S = 60.0

CONFIG = """
ClusterName=jccl
SlurmctldHost={controller}({subnet}254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=20
SlurmctldTimeout=10
InactiveLimit=0
KillWait=5
MinJobAge=300
ReturnToService=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def missing() -> str:
    """Why there can be no such cluster here, in one line; "" if there can."""
    if os.geteuid():
        return "network namespaces need root"
    for program in PROGRAMS:
        if not find(program):
            return f"no Slurm: {program} is not installed"
    spaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"]
    tried = subprocess.run(spaces, capture_output=True, text=True)
    return f"no Slurm: {tried.stderr.strip()}" if tried.returncode else ""


def find(program: str) -> str:
    """Debian's daemons are in sbin, which users may not have in their path."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return shutil.which(program, path=places) or ""


class Host:
    """Namespaces with an address on the bridge, and the daemon that runs there."""

    def __init__(self, cluster: Cluster, name: str, argv: list[str]) -> None:
        self.name, self.folder = name, cluster.folder
        own_pids = [] if name == CONTROLLER else ["--pid", "--fork", "--mount-proc"]
        spaces = ["--net", "--uts", "--mount", "--propagation", "private", *own_pids]
        begin = (
            'hostname "$1"; mount --bind "$2" /etc/hosts; ip link set lo up; '
            'read go; shift 2; exec "$@"'
        )
        hosts = str(cluster.folder / "hosts")
        self.process = subprocess.Popen(
            [
                *("unshare", *spaces, "--kill-child"),
                *("sh", "-c", begin, "sh", name, hosts, *argv),
            ],
            stdin=subprocess.PIPE,
            stdout=(cluster.folder / f"{name}.out").open("ab"),
            stderr=subprocess.STDOUT,
            env=cluster.env,
            start_new_session=True,
        )
        self._await_namespaces()

    def _await_namespaces(self) -> None:
        own = os.readlink("/proc/self/ns/net")

        def apart() -> bool:
            assert self.process.poll() is None, f"{self.name} did not start"
            place = f"/proc/{self.process.pid}/ns"
            return os.readlink(f"{place}/net") != own and os.readlink(
                f"{place}/uts"
            ) != os.readlink("/proc/self/ns/uts")

        wait_until(apart, 10, f"the namespaces of {self.name}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def enter(self, *argv: str, folder: Path | None = None) -> list[str]:
        """The command line that runs a command there, outside the PID namespace."""
        pid = str(self.process.pid)
        spaces = ["--net", "--uts", "--mount", f"--wd={folder or self.folder}"]
        return ["nsenter", "-t", pid, *spaces, *argv]

    def kill(self) -> None:
        """A power cut: with its first process all others of the host end, by -9."""
        self.process.kill()
        self.process.wait()


class Cluster:
    """Up as a context manager."""

    def __init__(self, nodes: int = 3, cpus: int = 4) -> None:
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        self.cpus = cpus
        self.folder = Path(tempfile.mkdtemp(prefix="jccl-slurm-"))
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("JCCL_")},
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]),
        }
        self.hosts: dict[str, Host] = {}
        self._munged: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Cluster:
        try:
            self._configure()
            self._start_munged()
            controller = Host(self, CONTROLLER, [find("slurmctld"), "-D", "-c"])
            self.hosts[CONTROLLER] = controller
            for line in (
                "ip link add br0 type bridge",
                f"ip addr add {SUBNET}254/24 dev br0",
                "ip link set br0 up",
            ):
                self._sh(*controller.enter(*line.split()))
            controller.go()
            for name in self.names:
                self.boot(name)
            self._await_idle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _configure(self) -> None:
        # As root's tests keep it: jobs read their scripts and write their output there.
        self.folder.chmod(0o755)
        for part in ("state", "munge"):
            (self.folder / part).mkdir()
        lines = [f"{SUBNET}254 {CONTROLLER}", "127.0.0.1 localhost"]
        lines += [f"{self.address(name)} {name}" for name in self.names]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        nodes = [
            f"NodeName={name} NodeAddr={self.address(name)} CPUs={self.cpus} "
            f"RealMemory=2000 State=UNKNOWN"
            for name in self.names
        ]
        (self.folder / "slurm.conf").write_text(
            CONFIG.format(
                folder=self.folder,
                subnet=SUBNET,
                controller=CONTROLLER,
                nodes="\n".join(nodes),
            )
        )

    def _start_munged(self) -> None:
        """One for all hosts: its socket is a file, and namespaces share those."""
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        own = self.folder / "munge"
        own.chmod(0o700)
        self._munged = subprocess.Popen(
            [
                *(find("munged"), "--foreground", "--force", f"--key-file={key}"),
                f"--socket={self.folder}/munge.socket",
                *(f"--pid-file={own}/pid", f"--seed-file={own}/seed"),
                f"--log-file={own}/log",
            ],
            stdin=subprocess.DEVNULL,
            stdout=(own / "out").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_until((self.folder / "munge.socket").exists, 20, "munged")

    def address(self, name: str) -> str:
        return f"{SUBNET}{self.names.index(name) + 1}"

    def boot(self, name: str) -> None:
        """Starts a node, also one that was killed."""
        host = Host(self, name, [find("slurmd"), "-D", "-N", name])
        self.hosts[name] = host
        link = f"p{name}"
        controller = self.hosts[CONTROLLER]
        ip = controller.enter("ip", "link")
        inside = str(host.process.pid)
        self._sh(
            *(*ip, "add", link, "type", "veth"),
            *("peer", "name", "eth0", "netns", inside),
        )
        self._sh(*ip, "set", link, "master", "br0", "up")
        self._sh(
            *host.enter("ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        )
        self._sh(*host.enter("ip", "link", "set", "eth0", "up"))
        host.go()

    def kill(self, name: str) -> None:
        self.hosts[name].kill()

    def run(self, *argv: str, check: bool = True, **env: str) -> str:
        """What a command says on the controller's host."""
        done = subprocess.run(
            self.hosts[CONTROLLER].enter(*argv),
            env={**self.env, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}"
            )
        return done.stdout

    def state(self, job: str) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED and others."""
        text = self.run("scontrol", "show", "job", job)
        found = re.search(r"JobState=(\S+)", text)
        assert found is not None, text
        return found[1]

    def node_state(self, name: str) -> str:
        return self.run("sinfo", "-h", "-n", name, "-p", "main", "-o", "%T").strip()

    def _await_idle(self) -> None:
        def idle() -> bool:
            return all(self.node_state(name) == "idle" for name in self.names)

        with contextlib.suppress(TimeoutError):
            wait_until(idle, READY_S, "idle nodes")
            return
        raise AssertionError(f"the cluster is not ready: {self.logs()}")

    def logs(self, lines: int = 15) -> str:
        """The last lines of all daemons."""
        texts = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            last = path.read_text(errors="replace").splitlines()[-lines:]
            texts.append("\n".join([f"--- {path.name}", *last]))
        return "\n".join(texts)

    def _sh(self, *argv: str, **options: Any) -> None:
        done = subprocess.run(argv, capture_output=True, text=True, **options)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"

    def close(self) -> None:
        for host in reversed(list(self.hosts.values())):
            if host.process.poll() is None:
                host.kill()
        if self._munged is not None:
            self._munged.terminate()
            self._munged.wait()
        for _ in range(50):  # what dies may still write
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                return
            time.sleep(0.1)
