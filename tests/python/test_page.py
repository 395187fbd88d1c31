"""The page of a master (--http), as browsers, Prometheus and strangers use it."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jccl import _native
from jccl.testing import Cluster, Process, wait_until

CORE = _native.core()
WEB = Path(__file__).parents[2] / "cpp/page/web"
MARK = '"} 1 <b onclick=x>\\'  # what is no line is no name: refused before
CALLS = """
import jccl, numpy as np
with jccl.connect(deadline=600) as comm:
    comm.all_reduce(np.ones(8, np.float32), op="mean")
"""
ROUTES = ("/", "/page.css", "/page.js", "/icon.svg", "/healthz", "/metrics")
ROUTES += ("/api/v1/status", "/events")


class Page:
    """Asks for what the address of a page gives."""

    def __init__(self, address, token=""):
        self.port = int(address.rpartition(":")[2])
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path, method="GET"):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request(method, path, headers=self.headers)
        answer = link.getresponse()
        if path.startswith("/events") and answer.status == 200:
            return answer.status, ""  # it does not end
        return answer.status, answer.read().decode()

    def status(self):
        code, text = self.get("/api/v1/status")
        assert code == 200, text
        return json.loads(text)

    def events(self, after=0):
        """Yields them as they come."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        link.request("GET", f"/events?after={after}", headers=self.headers)
        answer = link.getresponse()
        assert answer.status == 200
        for line in answer:
            if line.startswith(b'data: {"id":'):
                yield json.loads(line[6:])


def rounds(cluster, count):
    for _ in range(count):
        cluster.run(lambda comm, _: comm.all_reduce(np.ones(8, np.float32), op="mean"))


def test_every_route_tells_of_the_run_and_a_kill_comes_as_an_event(tmp_path):
    with Cluster(2, http="127.0.0.1:0") as cluster:
        page = Page(cluster.master.http_address)
        rounds(cluster, 2)
        assert [page.get(path)[0] for path in ROUTES] == [200] * len(ROUTES)
        assert [page.get(path, "HEAD") for path in ROUTES] == [(200, "")] * len(ROUTES)
        whole = page.status()
        assert len([p for p in whole["status"]["peers"] if p["admitted"]]) == 2
        assert whole["age_s"] < 2 and set(whole["joined"]) == {
            peer["site"] for peer in whole["status"]["peers"]
        }
        last = whole["rounds"][-1]
        assert last["end"] == "commit" and last["world"] == "2"
        assert last["formed"] <= last["started"] <= last["done"] <= last["ended"]
        assert 'jccl_peers{state="member"} 2' in page.get("/metrics")[1]

        killed = Process(
            [sys.executable, "-c", CALLS],
            {**os.environ, "JCCL_MASTER": cluster.master.address, "JCCL_SITE": MARK},
            tmp_path / "peer.log",
        )
        events = page.events()
        try:
            assert next(e for e in events if e["kind"] == "admit" and e["site"] == MARK)
            assert MARK in page.status()["joined"]
            metrics = page.get("/metrics")[1]
            assert 'site="\\"} 1 <b onclick=x>\\\\"' in metrics
            assert all(re.match(r"#|jccl_", line) for line in metrics.splitlines())
        finally:
            killed.kill()
        begun = time.monotonic()
        gone = next(e for e in events if e["kind"] == "evict")
        assert gone["site"] == MARK and MARK in gone["reason"]
        assert (
            time.monotonic() - begun < 30
        )  # with a quiet machine 0.2 s: make long-page
        assert MARK not in page.status()["joined"]


def memory_of(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024


def hostile_sockets(port, count, words):
    """So many connections that say this and then nothing."""
    sockets = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
        sockets.append(one)
    for one in sockets:
        try:
            one.setblocking(True)
            one.settimeout(0.01)
            one.sendall(words)
        except OSError:
            pass  # closed by the other side
    return sockets


def test_hostile_clients_hold_no_round_up_and_take_no_memory(tmp_path):
    log = tmp_path / "master.log"
    argv = [sys.executable, "-m", "jccl.cli", "master", "--bind=127.0.0.1:0"]
    master = Process([*argv, "--http=127.0.0.1:0"], dict(os.environ), log)
    try:
        wait_until(lambda: "page http" in log.read_text(), 60)
        said = dict(re.split("[= ]", line) for line in log.read_text().splitlines())
        port = int(said["page"].rstrip("/").rpartition(":")[2])
        page = Page(f"127.0.0.1:{port}")
        stop = threading.Event()

        def calls():
            import jccl

            with jccl.connect(said["JCCL_MASTER"], deadline=60) as comm:
                while not stop.is_set():
                    comm.all_reduce(np.ones(8, np.float32), op="mean")

        peer = threading.Thread(target=calls)
        peer.start()
        wait_until(lambda: page.status()["rounds"], 60)
        before = memory_of(master.popen.pid)
        words = [
            b"GET / HTTP/1.1\r\nHost: loc",
            b"X" * 100_000,
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        held = [s for w in words for s in hostile_sockets(port, 300, w)]
        held += hostile_sockets(
            port, 100, b"GET /events HTTP/1.1\r\nHost: [::1]\r\n\r\n"
        )
        commits = page_commits(said["JCCL_MASTER"])
        wait_until(lambda: page_commits(said["JCCL_MASTER"]) > commits + 5, 60)
        assert memory_of(master.popen.pid) - before < 24e6
        for one in held:
            one.close()
        wait_until(lambda: answers(page), 60)
        stop.set()
        peer.join()
    finally:
        master.kill()


def answers(page):
    try:
        return page.get("/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False  # it made room for another


def page_commits(address):
    """By the master's own port, whatever becomes of its page."""
    return sum(t["commits"] for t in json.loads(CORE.query_status(address))["tags"])


@pytest.fixture
def guarded():
    secret = CORE.new_token()
    master = CORE.Master.start(token=secret, http="0.0.0.0:0")
    yield master, secret
    master.stop()


def test_off_loopback_a_token_of_role_observer_is_needed(guarded):
    master, secret = guarded
    data = ("/metrics", "/api/v1/status", "/events")
    other = CORE.make_token(CORE.new_token(), role="observer")
    observer = CORE.make_token(secret, role="observer")
    wrong = [CORE.make_token(secret, role=role) for role in ("peer", "admin")]
    flipped = observer[:-1] + ("0" if observer[-1] != "0" else "1")
    past = CORE.make_token(secret, role="observer", expires_unix_s=1)
    for token in ("", "x", secret, other, flipped, past, *wrong):
        page = Page(master.http_address, token)
        assert [page.get(path)[0] for path in data] == [401] * 3, token
        assert page.get("/")[0] == page.get("/healthz")[0] == 200
    assert "jccl token --role observer" in page.get("/metrics")[1]
    page = Page(master.http_address, observer)
    assert [page.get(path)[0] for path in data] == [200] * 3
    assert Page(master.http_address).get(f"/metrics?token={observer}")[0] == 401


def test_a_revoked_token_sees_nothing_more_and_its_stream_ends(guarded):
    master, secret = guarded
    observer = CORE.make_token(secret, role="observer")
    page = Page(master.http_address, observer)
    events = page.events()
    assert next(events)["kind"] == "master"
    name = observer.split(".")[3]
    CORE.give_order(master.address, verb="revoke", subject=name, token=secret)
    assert list(events)[-1]["kind"] != "master"  # it ends
    code, text = page.get("/metrics")
    assert code == 401 and "revoked" in text
    assert page.get("/metrics")[0] == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.0.2.1"])
def test_off_loopback_without_a_token_it_does_not_start(host):
    argv = [sys.executable, "-m", "jccl.cli", "master", "--bind=127.0.0.1:0"]
    ended = subprocess.run(
        [*argv, f"--http={host}:0"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode != 0 and "JCCL_MASTER" not in ended.stdout
    assert "can be reached from other machines" in ended.stderr
    assert "jccl token" in ended.stderr


def test_an_address_that_cannot_be_had_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CORE.CoreError, match=f"--http 127.0.0.1:{port}.*in use"):
            CORE.Master.start(http=f"127.0.0.1:{port}")


def test_the_page_asks_nobody_else_for_anything_and_makes_no_markup_of_names():
    files = {path.name: path.read_text() for path in WEB.iterdir()}
    assert set(files) == {"index.html", "page.css", "page.js", "icon.svg"}
    assert sum(map(len, files.values())) < 60_000
    names = ("http://www.w3.org/2000/svg",)  # of a vocabulary; nobody dials it
    for name, text in files.items():
        found = [u for u in re.findall(r"https?://[^\"'\s]+", text) if u not in names]
        assert not found, name
    markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function"
    assert not re.search(markup, files["page.js"])
    assert not re.search(r"<script>|<style|style=|\son\w+=", files["index.html"])
