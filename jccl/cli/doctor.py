"""`jccl doctor`: what this machine has, what jccl makes of it, and how to fix the rest.

Each check is a function that returns one finding; none changes anything or needs root.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import jccl
from jccl import _native, callback
from jccl._faults import typed_errors
from jccl.cli.common import run_options, shown
from jccl.errors import Code, Error
from jccl.settings import DEFAULT_PORT, read_token

OK, WARN, FAIL = "ok", "warn", "fail"
FIXES = {
    Code.MASTER_LOST: "start it (jccl master); check JCCL_MASTER",
    Code.AUTH: "give the run's token (JCCL_TOKEN or --token-file)",
    Code.INVALID: "correct JCCL_MASTER or --master",
    Code.IO: "correct JCCL_TOKEN_FILE or --token-file",
    Code.VERSION: "install the master's version of jccl",
}
MARK = {OK: "[green]ok[/]", WARN: "[yellow]warn[/]", FAIL: "[bold red]fail[/]"}


@dataclasses.dataclass(frozen=True)
class Finding:
    what: str
    state: str
    found: str
    fix: str = ""


@click.command(name="doctor")
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    master: str | None, token_file: str | None, insecure: bool, as_json: bool
) -> None:
    """Check this machine, and say how to fix each problem.

    With --master (or JCCL_MASTER) it also asks that master. Exit code 1 if a check
    fails.
    """
    findings = [check() for check in CHECKS]
    findings.append(_master(master, token_file, insecure))
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(f) for f in findings], indent=2))
    else:
        table = Table("check", "", "found", "fix")
        for finding in findings:
            table.add_row(
                finding.what,
                MARK[finding.state],
                shown(finding.found),
                shown(finding.fix),
            )
        Console().print(table)
    if any(finding.state == FAIL for finding in findings):
        raise SystemExit(1)


def _python() -> Finding:
    return Finding("python", OK, f"{platform.python_version()}, {sys.executable}")


def _packages() -> Finding:
    versions, missing = [f"jccl {jccl.__version__}"], []
    for name in ("jax", "jaxlib", "optax", "numpy", "flax"):  # flax: an extra
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    text = ", ".join(versions)
    if set(missing) - {"flax"}:
        return Finding(
            "packages", FAIL, f"{text}; missing: {', '.join(missing)}", "pip install ."
        )
    return Finding("packages", OK, text)


def _extension() -> Finding:
    try:
        version = _native.core().version
    except ImportError as fault:
        return Finding("native module", FAIL, str(fault), "pip install -e .")
    return Finding("native module", OK, f"version {version}")


def _ffi() -> Finding:
    try:
        built = _native.core().ffi_api_version
    except ImportError:
        return Finding("XLA FFI", FAIL, "no native module", "pip install -e .")
    if problem := _native.ffi_problem():
        return Finding("XLA FFI", FAIL, problem, "build jccl against this jaxlib")
    served = _native.runtime_ffi_api_version()
    text = f"built for {built[0]}.{built[1]}, jaxlib serves {served[0]}.{served[1]}"
    return Finding("XLA FFI", OK, text)


def _route() -> Finding:
    """How compiled programs of this machine reach the transport."""
    try:
        named = callback.check_route(os.environ.get("JCCL_ROUTE"))
    except ValueError as fault:
        return Finding("route", FAIL, f"JCCL_ROUTE: {fault}", "unset JCCL_ROUTE")
    try:
        backend = _native.default_platform()
    except RuntimeError as fault:  # JAX_PLATFORMS names what isn't here
        return Finding("route", FAIL, f"JAX finds no backend: {fault}", "JAX_PLATFORMS")
    route = named or callback.route_for(backend)
    text = f"{route} on {backend}" + (", by JCCL_ROUTE" if named else "")
    if route == callback.FFI:
        return Finding("route", OK, text)
    return Finding("route", WARN, text, "callbacks copy: see jccl.between_steps")


def _isa() -> Finding:
    flags = _cpu_flags()
    if platform.machine() not in ("x86_64", "AMD64"):
        return Finding("instruction set", OK, platform.machine())
    for name, needed in (
        ("AVX-512", {"avx512f", "avx512bw", "avx512vl"}),
        ("AVX2", {"avx2"}),
    ):
        if needed <= flags:
            return Finding("instruction set", OK, f"x86-64 with {name}")
    return Finding("instruction set", WARN, "x86-64 baseline", "codecs run slower here")


def _congestion() -> Finding:
    base = "net/ipv4/tcp_congestion_control"
    current = _sysctl(base)
    available = _sysctl("net/ipv4/tcp_available_congestion_control").split()
    if not current:
        return Finding("congestion control", WARN, "not readable")
    text = f"{current}, available: {' '.join(available)}"
    if "bbr" not in available:
        return Finding(
            "congestion control",
            WARN,
            text,
            "for wide areas: modprobe tcp_bbr (10x at 0.1 % loss)",
        )
    return Finding("congestion control", OK, text)


def _buffers() -> Finding:
    limit, tcp = _sysctl("net/core/wmem_max"), _sysctl("net/ipv4/tcp_wmem").split()
    if not limit or len(tcp) != 3:
        return Finding("send buffers", WARN, "not readable")
    text = f"wmem_max {limit}, tcp_wmem {' '.join(tcp)}"
    # jccl leaves buffers to the kernel's tuning, which tcp_wmem bounds.
    if int(tcp[2]) < 4 << 20:
        return Finding(
            "send buffers",
            WARN,
            text,
            "sysctl -w net.ipv4.tcp_wmem='4096 65536 16777216'",
        )
    return Finding("send buffers", OK, text)


def _port() -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError as fault:
            return Finding(
                "port",
                WARN,
                f"{DEFAULT_PORT}: {fault.strerror}",
                "fine if a master runs here; else jccl master --bind 127.0.0.1:0",
            )
    return Finding("port", OK, f"{DEFAULT_PORT} is free")


def _master(master: str | None, token_file: str | None, insecure: bool) -> Finding:
    if not master:
        return Finding("master", OK, "none named (JCCL_MASTER is not set)")
    try:
        token = read_token(None, token_file)
        with typed_errors():
            text = _native.core().query_status(master, token=token, insecure=insecure)
    except ImportError:
        return Finding("master", FAIL, "no native module", "pip install -e .")
    except Error as fault:
        fix = FIXES.get(fault.code, "see the finding")
        return Finding("master", FAIL, fault.text, fix)
    status = json.loads(text)
    if status.get("failure"):
        return Finding("master", FAIL, status["failure"], "restart it on its journal")
    return Finding(
        "master", OK, f"{master}: epoch {status['epoch']}, {len(status['peers'])} peers"
    )


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    found = [
        line.split(":", 1)[1].split() for line in lines if line.startswith("flags")
    ]
    return set(found[0]) if found else set()


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _packages,
    _extension,
    _ffi,
    _route,
    _isa,
    _congestion,
    _buffers,
    _port,
)
