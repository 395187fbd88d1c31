"""A list of masters of which one serves: others refuse, or only take connections."""

import json
import socket

import numpy as np

import jccl
from jccl import _native
from jccl.testing import Cluster


def refusing() -> str:
    """An address nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def test_a_peer_goes_on_from_a_master_that_refuses_and_one_that_is_silent():
    # As the kernel of a paused process would, this listener completes connections.
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, Cluster(0, start_peers=1) as cluster:
        dumb = f"127.0.0.1:{silent.getsockname()[1]}"
        masters = f"{refusing()},{dumb},{cluster.master.address}"
        with jccl.connect(
            masters, deadline=30.0, waits=jccl.Waits(connect_timeout=20.0)
        ) as comm:
            assert comm.all_reduce(np.ones(3, np.float32)).value[0] == 1.0


def test_the_status_is_asked_of_the_master_that_serves():
    with Cluster(1) as cluster:
        masters = f"{refusing()},{cluster.master.address}"
        status = json.loads(_native.core().query_status(masters))
        assert status["address"] == cluster.master.address
