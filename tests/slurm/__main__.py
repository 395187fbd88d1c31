"""A Slurm of several nodes on this machine, to try docs/slurm.md: a shell beside it.

    python -m tests.slurm                 # as root, with slurm-wlm and iproute2
    python -m tests.slurm -- COMMAND      # in place of the shell

In the shell, `sbatch`, `squeue` and the rest speak to that Slurm, and $n1, $n2, … are
the first processes of the nodes: `kill -9 $n2` is a power cut. The node boots again
after --reboot seconds, with another first process. All ends with the shell.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click

from tests.slurm.cluster import CONTROLLER, Cluster, missing


def reboot(cluster: Cluster, after_s: float, over: threading.Event) -> None:
    """Boots nodes that were killed, until `over`."""
    while not over.wait(1.0):
        for name in cluster.names:
            if cluster.hosts[name].process.poll() is None:
                continue
            if over.wait(after_s):
                return
            cluster.boot(name)


@click.command()
@click.option("--nodes", default=3, show_default=True)
@click.option("--reboot", "after_s", default=2.0, show_default=True, help="Seconds.")
@click.argument("command", nargs=-1)
def main(nodes: int, after_s: float, command: tuple[str, ...]) -> None:
    """A Slurm of several nodes on this machine."""
    if why := missing():
        raise click.ClickException(
            f"{why} (Debian, as root: apt-get install slurm-wlm iproute2)"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nodes do not outlive us
    with Cluster(nodes) as cluster:
        pids = {name: str(cluster.hosts[name].process.pid) for name in cluster.names}
        shown = ", ".join(f"{name} is process {pid}" for name, pid in pids.items())
        click.echo(f"Slurm with {nodes} nodes: {shown}.", err=True)
        argv = list(command) or [os.environ.get("SHELL", "/bin/sh")]
        over = threading.Event()
        booter = threading.Thread(target=reboot, args=(cluster, after_s, over))
        booter.start()
        try:
            inside = cluster.hosts[CONTROLLER].enter(*argv, folder=Path.cwd())
            ended = subprocess.run(inside, env={**cluster.env, **pids})
        finally:
            over.set()
            booter.join()
    raise SystemExit(ended.returncode)


if __name__ == "__main__":
    main()
