"""`jccl master`: the process that orders membership and decides outcomes."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import click

from jccl.cli import etcd
from jccl.cli.common import Decimal, keep_out_of_cores
from jccl.cli.signals import handled_by
from jccl.settings import DEFAULT_PORT, read_token


@click.command(name="master")
@click.option(
    "--bind",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    help="Listen address; with port 0 the kernel chooses a free one.",
)
@click.option(
    "--store",
    default="memory:",
    show_default=True,
    help="Where the journal is stored: sqlite:PATH survives a restart, "
    "etcd://HOST:PORT,…/PREFIX also the loss of the machine.",
)
@click.option(
    "--with-etcd",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Start an etcd of this master's own with its data in DIR, watch it, keep the "
    "journal there, and end it with the master.",
)
@click.option(
    "--etcd-peers",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST:PORT,…",
    help="With --with-etcd: the machines of all its members, this one first, the same "
    "ones on each; three of them survive the loss of one. Members meet at PORT (2380).",
)
@click.option(
    "--etcd-tls",
    type=click.Path(file_okay=False),
    metavar="DIR",
    default="",
    help="With --with-etcd: ca.pem, cert.pem and key.pem, by which its members know "
    "each other.",
)
@click.option("--token-file", type=click.Path(), help="File with the run's token.")
@click.option("--new-token", is_flag=True, help="Make a token and print it.")
@click.option(
    "--start-peers",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Number of sites that the first round waits for.",
)
@click.option(
    "--min-peers",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Number of sites that each commit needs.",
)
@click.option(
    "--silence",
    type=click.FloatRange(0, min_open=True),
    help="Seconds until a silent peer is evicted; default: the profile's.",
)
@click.option(
    "--profile",
    type=click.Choice(["lan", "default", "wan"]),
    default="default",
    show_default=True,
    help="How soon a peer counts as hung or cut off: 0.6, 3 or 5 s.",
)
@click.option(
    "--straggler",
    type=click.Choice(["wait", "skip", "evict"]),
    default="wait",
    show_default=True,
    help="What to do with sites that the others wait for.",
)
@click.option(
    "--straggler-after",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that the others wait first, with skip and evict.",
)
@click.option(
    "--weight-max",
    type=Decimal(),
    default="1e6",
    show_default=True,
    help="Refuse a weight above so many times the median weight of its round; 0: none.",
)
@click.option(
    "--max-rate",
    type=Decimal(),
    default="0",
    show_default=True,
    help="Bytes per second that each peer may send to all others together, at least "
    "10000; 0: no bound. A peer's own max_rate may be lower.",
)
@click.option(
    "--audit",
    type=Decimal(most=1),
    default="0",
    show_default=True,
    help="Share of each round's cells that the master adds up anew before the commit, "
    "from 0 (none) to 1.",
)
@click.option(
    "--restore-after",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="If no peer has the newest state: seconds until the run goes back to the "
    "newest state that a peer has.",
)
@click.option(
    "--admission",
    default="auto",
    show_default=True,
    help="Which peers may become members: auto, all with a token; list:FILE, the keys "
    "in that file; manual, those that `jccl admit` admits.",
)
@click.option(
    "--source",
    default="",
    help="Site whose state begins the run; no other may be named its "
    "source; default: the one that peers name, else what most of them have.",
)
@click.option(
    "--peer-networks",
    default="",
    help="Networks, like 10.0.0.0/8,fd00::/8, in which the master dials lost peers to "
    "see whether they still listen; default: global addresses, and loopback or private "
    "ones if the peer came from one.",
)
@click.option(
    "--history",
    default="",
    help="Append every decision here, as JSON lines; at 64 MiB it becomes PATH.1.",
)
@click.option(
    "--record",
    type=click.Path(),
    default="",
    help="Leave recordings of the master here, for jccl-sim --replay: after faults, on "
    "SIGUSR1 and on `jccl dump`.",
)
@click.option(
    "--record-mib",
    type=click.IntRange(0, 128),
    default=4,
    show_default=True,
    help="How much of the last events the master keeps for that, in memory; 0: none.",
)
@click.option(
    "--http",
    default="",
    metavar="HOST:PORT",
    help="Serve a read-only page about the run there, with /metrics for Prometheus. "
    "Off loopback it needs the run's token, and observers show one of role observer.",
)
@click.option(
    "--max-groups",
    type=click.IntRange(0, 64),
    default=64,
    show_default=True,
    help="Groups of the run that may be open at once; 0: none.",
)
@click.option("--insecure", is_flag=True, help="Allow plain connections off loopback.")
def command(
    token_file: str | None,
    new_token: bool,
    silence: float | None,
    with_etcd: str | None,
    etcd_peers: str,
    etcd_tls: str,
    **config: Any,
) -> None:
    """Run the master of a run until Ctrl-C.

    Prints the JCCL_MASTER= line that peers need, and with --new-token the JCCL_TOKEN=
    line that admits them and the JCCL_ADMIN_TOKEN= line for orders (drain, kick, ban).
    With --store sqlite:PATH, a killed master continues after a restart with the same
    arguments. With --store etcd://…, start it on two machines: one is active, the
    other takes over. --with-etcd starts the etcd as well, on one or three machines.
    """
    from jccl import _native

    in_memory = config["store"] == "memory:"
    if with_etcd and not in_memory:
        raise click.UsageError("--with-etcd and --store exclude each other")
    if new_token and token_file:
        raise click.UsageError("--new-token and --token-file exclude each other")
    if new_token and (with_etcd or not in_memory):
        raise click.UsageError(
            "--new-token is of a run that ends with its master; to start it again on "
            "its journal keep the secret: jccl token --file run.secret, then "
            "--token-file"
        )
    token = _native.core().new_token() if new_token else read_token(None, token_file)
    if token:
        keep_out_of_cores()
    stop, asked = threading.Event(), threading.Event()
    with (
        handled_by(lambda *_: stop.set(), signal.SIGINT, signal.SIGTERM),
        handled_by(lambda *_: asked.set(), signal.SIGUSR1),
    ):
        config |= {"token": token, "silence": silence or 0.0}
        if not with_etcd:
            _run(config, stop, asked, new_token)
            return
        insecure = config["insecure"]
        with etcd.beside(with_etcd, etcd_peers, etcd_tls, insecure, stop) as own:
            if own is not None:
                config["store"] = own.store
                _run(config, stop, asked, failed=lambda: own.failure)


def _run(
    config: dict[str, Any],
    stop: threading.Event,
    asked: threading.Event,
    new_token: bool = False,
    failed: Callable[[], str] = str,
) -> None:
    """Until `stop`; `failed` says what became of something that it needs."""
    from jccl import _native
    from jccl._faults import typed_errors
    from jccl.errors import AbortedError

    try:
        with typed_errors():
            master = _native.core().Master.start(
                **config, keep_waiting=lambda: not (stop.is_set() or failed())
            )
    except AbortedError:
        if failed():
            raise click.ClickException(failed()) from None
        return  # stopped while it was a standby
    try:
        click.echo(f"JCCL_MASTER={master.address}")
        if master.http_address:
            click.echo(f"page http://{master.http_address}/")
        if new_token:
            _give_tokens(config["token"])
        failure = _serve(master, stop, asked, failed)
    finally:
        master.stop()
    if failure:
        raise click.ClickException(f"the master stopped serving: {failure}")


def _give_tokens(secret: str) -> None:
    """The run's secret stays here: who has one of these can't lead the run."""
    from jccl import _native

    make = _native.core().make_token
    click.echo(f"JCCL_TOKEN={make(secret)}")
    click.echo(f"JCCL_ADMIN_TOKEN={make(secret, role='admin')}")


def _serve(
    master: Any,
    stop: threading.Event,
    asked: threading.Event,
    failed: Callable[[], str],
) -> str:
    """Waits for a signal, or for a failure of the journal; the text of the latter."""
    while not stop.wait(0.5):
        if asked.is_set():
            asked.clear()
            _record(master)
        failure = failed() or json.loads(master.status_json()).get("failure", "")
        if failure:
            return str(failure)
    return ""


def _record(master: Any) -> None:
    """What SIGUSR1 asks for: where the recording is, or why there is none."""
    from jccl._faults import typed_errors
    from jccl.errors import Error

    try:
        with typed_errors():
            click.echo(f"recording {master.record('SIGUSR1')}", err=True)
    except Error as fault:
        click.echo(f"no recording: {fault.text}", err=True)
