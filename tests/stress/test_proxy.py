"""The proxy gives each connection to the process that dialled it, or to nobody."""

import os
import socket
import time

import pytest

from tests.stress.proxy import Network


@pytest.fixture
def network():
    network = Network()
    yield network
    network.close()


@pytest.fixture
def shown(network):
    """The port of the proxy at which "b", who accepts and is silent, is reached."""
    with socket.create_server(("127.0.0.1", 0)) as target:
        yield network.listen("b", target.getsockname()[1])


def test_a_process_that_dials_before_it_has_a_name_is_waited_for(network, shown):
    with network.naming:
        dialled = socket.create_connection(("127.0.0.1", shown), timeout=10)
        time.sleep(0.1)  # the proxy has accepted
        network.processes["a"] = os.getpid()
    with dialled:
        limit = time.monotonic() + 10
        while not network.connections and time.monotonic() < limit:
            time.sleep(0.01)
        carried = [pair[:2] for pair in network.connections.values()]
    assert carried == [("a", "b")]


def test_who_has_no_name_is_refused(network, shown):
    with socket.create_connection(("127.0.0.1", shown), timeout=10) as dialled:
        assert dialled.recv(1) == b""
    assert network.counts["strangers"] == 1
    assert not network.connections
