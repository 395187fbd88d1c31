"""A network that is up: namespaces, the wanlink process, and the programs on its hosts.

All state is in /run/wan/NAME (and /etc/netns for the hosts' names), so that any process
can attach by name. What a killed owner left behind goes with the next network.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from benchmarks.wan.settings import NET_DEFAULTS as DEFAULTS
from benchmarks.wan.settings import (
    NET_KEYS,
    Topology,
    WanError,
    host_names,
    load,
    parse,
    split_item,
)

RUN = Path("/run/wan")
SUBNET = "10.77.0."
HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "wan"
SYSCTL = {"net.ipv6.conf.all.disable_ipv6": 1, "net.ipv4.tcp_no_metrics_save": 1}


def missing():
    """Why there can be no network here, in one line; "" if there can."""
    if os.geteuid():
        return "network namespaces need root"
    for program in ("ip", "unshare", os.environ.get("CXX", "g++")):
        if not shutil.which(program):
            return f"{program} is not installed"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as e:
        return f"/dev/net/tun: {e.strerror}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True
    )
    return tried.stderr.strip() if tried.returncode else ""


def sh(*command, check=True):
    argv = [str(c) for c in command]
    done = subprocess.run(argv, capture_output=True, text=True)
    if check and done.returncode:
        raise WanError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def build():
    """The data plane, compiled on first use."""
    sources = [HERE / "wanlink.cc", HERE / "emulator.cc"]
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2"]
    digest = hashlib.sha256(repr(command).encode())
    for file in (*sources, HERE / "emulator.h"):
        digest.update(file.read_bytes())
    program = BUILD / f"wanlink-{digest.hexdigest()[:16]}"
    if not program.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        unfinished = BUILD / f"tmp-{os.getpid()}"
        sh(*command, "-o", unfinished, *sources)
        unfinished.rename(program)
    return program


def start_time(pid):
    """Tells a process from a later one with the same pid; None when dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def networks():
    return sorted(path.parent.name for path in RUN.glob("*/state.json"))


def collect_garbage():
    """Removes networks whose owner (a run or Net()) died without doing so."""
    for name in networks():
        try:
            net = Net.attach(name)
        except WanError:
            continue  # went down meanwhile
        if net.owner and start_time(net.owner[0]) != net.owner[1]:
            net.close()


class Net:
    """An emulated network. As a context manager it is torn down at the end."""

    def __init__(self, hosts=2, *settings, name=None, file=None, keep=False):
        """Brings a network up. keep: let it live on after this process."""
        if os.geteuid():
            raise WanError("network namespaces need root")
        collect_garbage()
        self.name = name or f"t{os.getpid()}-{time.monotonic_ns() // 1000 % 10**9}"
        if not re.fullmatch("[A-Za-z0-9_-]{1,40}", self.name):
            raise WanError(f"bad network name {self.name!r}")
        items = (load(file) if file else []) + [split_item(s) for s in settings]
        fixed = {**DEFAULTS, "hosts": hosts}
        fixed |= {k: v for t, k, v in items if t == "" and k in NET_KEYS}
        sysctl = {**SYSCTL, **{k: v for t, k, v in items if t == "sysctl"}}
        self.topology = Topology(host_names(fixed["hosts"]))
        for target, key, value in items:
            if target != "sysctl" and key not in NET_KEYS:
                self.topology.apply(target, key, value)
        program = build()
        self.daemon = None
        self.owner = None if keep else [os.getpid(), start_time(os.getpid())]
        self.dir = RUN / self.name
        try:
            self.dir.mkdir(parents=True)
        except FileExistsError:
            raise WanError(f"network {self.name} is up already") from None
        try:
            self._start(program, fixed, sysctl)
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(cls, name):
        self = object.__new__(cls)
        self.name, self.dir = name, RUN / name
        self._load()
        return self

    def _load(self):
        try:
            state = json.loads((self.dir / "state.json").read_text())
        except OSError:
            raise WanError(f"no network {self.name}") from None
        self.topology = Topology.restore(state)
        self.daemon, self.owner = state["daemon"], state["owner"]

    def _save(self):
        unfinished = self.dir / f"state.{os.getpid()}"
        unfinished.write_text(json.dumps(self.state))
        unfinished.rename(self.dir / "state.json")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def hosts(self):
        return self.topology.hosts

    @property
    def state(self):
        own = {"daemon": self.daemon, "owner": self.owner}
        return {**vars(self.topology), **own}

    @property
    def addr(self):
        """Host name -> IPv4 address."""
        return {h: f"{SUBNET}{i + 1}" for i, h in enumerate(self.hosts)}

    def namespace(self, host):
        if host not in self.hosts:
            raise WanError(f"no host {host}")
        return f"wan-{self.name}-{host}"

    def _start(self, program, fixed, sysctl):
        self._save()
        lines = [f"{address} {host}\n" for host, address in self.addr.items()]
        for host in self.hosts:
            etc = Path("/etc/netns", self.namespace(host))
            etc.mkdir(parents=True, exist_ok=True)
            (etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
            if Path("/etc/resolv.conf").exists():  # other names fail at once
                (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
            sh("ip", "netns", "add", self.namespace(host))
        argv = [program, self.dir / "ctl", fixed["seed"]]
        argv += [
            int(parse("bool", int(fixed["gso"]))),
            *map(self.namespace, self.hosts),
        ]
        self._start_daemon([str(a) for a in argv])
        for host in self.hosts:
            self._configure(host, fixed, sysctl)
        self._push()

    def _start_daemon(self, argv):
        with open(self.dir / "log", "w") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        self.daemon = [process.pid, start_time(process.pid)]
        self._save()
        deadline = time.monotonic() + 10
        while True:
            try:
                return self._control("stats")
            except WanError:
                if process.poll() is not None or time.monotonic() > deadline:
                    text = (self.dir / "log").read_text()
                    raise WanError("wanlink failed: " + text) from None
                time.sleep(0.01)

    def _configure(self, host, fixed, sysctl):
        ns, address = self.namespace(host), self.addr[host]
        writes = [
            f"echo '{value}' > /proc/sys/{key.replace('.', '/')} || exit 1\n"
            for key, value in sysctl.items()
        ]
        ip = ["ip", "-n", ns]
        wan0 = ["dev", "wan0"]
        sh("ip", "netns", "exec", ns, "sh", "-c", "".join(writes))
        sh(*ip, "link", "set", "lo", "up")
        sh(*ip, "addr", "add", address + "/24", *wan0, "noprefixroute")
        sh(*ip, "link", "set", *wan0, "mtu", fixed["mtu"], "txqueuelen", 8000, "up")
        # Other than by sysctl, a route may name any congestion control.
        control = ["congctl", fixed["cc"]] if fixed["cc"] else []
        sh(*ip, "route", "add", "default", *wan0, "src", address, *control)

    def _control(self, *commands):
        replies = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(10)
            try:
                s.connect(str(self.dir / "ctl"))
                for command in commands:
                    s.send(command.encode())
                    replies.append(s.recv(1 << 16).decode())
            except OSError as e:
                raise WanError(f"wanlink of {self.name} does not answer: {e}") from None
        for reply in replies:
            if reply.startswith("error"):
                raise WanError(reply)
        return replies

    def _push(self):
        self._control(*self.topology.commands())

    def set(self, *settings):
        """Changes settings of the running network, such as 'h0-h1.loss=1%'."""
        with open(self.dir / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._load()
            for text in settings:
                self.topology.apply(*split_item(text))
            self._push()
            self._save()

    def cut(self, *targets):
        """Silently drops all traffic of hosts ('h0') or paths ('h0-h1')."""
        self.set(*(f"{t}.cut=1" for t in targets))

    def heal(self, *targets):
        self.set(*(f"{t}.cut=0" for t in targets))

    def argv(self, host, command):
        """The command line that runs the command on the host."""
        init = f'echo {host} > /proc/sys/kernel/hostname; exec "$@"'
        env = {"WAN_NET": self.name, "WAN_HOST": host, "WAN_ADDR": self.addr.get(host)}
        enter = ["ip", "netns", "exec", self.namespace(host), "unshare", "--uts", "env"]
        enter += [f"{key}={value}" for key, value in env.items()]
        return [*enter, "sh", "-c", init, "sh", *map(str, command)]

    def popen(self, host, command, **options):
        return subprocess.Popen(self.argv(host, command), **options)

    def run(self, host, command, **options):
        return subprocess.run(self.argv(host, command), **options)

    def kill(self, host):
        """Kills all programs on a host; loops, as they may be forking."""
        for _ in range(50):
            pids = sh("ip", "netns", "pids", self.namespace(host), check=False).split()
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.02)

    def stats(self):
        """Counters since up; lateness (of deliveries) since the last call."""
        stats = json.loads(self._control("stats")[0])
        stats["hosts"] = dict(zip(self.hosts, stats["hosts"], strict=True))
        for host, counts in stats["hosts"].items():
            show = (
                "ip",
                "-n",
                self.namespace(host),
                "-s",
                "-j",
                "link",
                "show",
                "wan0",
            )
            device = json.loads(sh(*show))[0]["stats64"]
            counts["drop_device"] = device["tx"]["dropped"]
        text = Path(f"/proc/{self.daemon[0]}/stat").read_text()
        user, system = text.rpartition(")")[2].split()[11:13]
        stats["cpu_s"] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return stats

    def close(self):
        """Kills everything on the hosts and removes all traces."""
        for host in self.hosts:
            self.kill(host)
        if self.daemon:
            pid, started = self.daemon
            if start_time(pid) == started:
                os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # when it is our own child
        for host in self.hosts:
            sh("ip", "netns", "del", self.namespace(host), check=False)
            etc = Path("/etc/netns", self.namespace(host))
            shutil.rmtree(etc, ignore_errors=True)
        shutil.rmtree(self.dir, ignore_errors=True)
