"""What lasts is said late, with rate and what is left, and when it is over."""

import secrets
import threading

import jax
import numpy as np
import pytest

from jccl import _progress
from jccl.testing import Cluster


@pytest.fixture
def progress(monkeypatch):
    monkeypatch.setattr(_progress, "compiles", lambda thread: thread.compiles)
    owner = threading.current_thread()
    monkeypatch.setattr(owner, "compiles", False, raising=False)
    return _progress.Progress(owner)


def said(progress, now, waits=(), received=0, world=2):
    return list(progress.lines(now, dict(waits), received, world))


def test_a_compile_is_said_when_it_lasts_and_when_it_is_over(progress):
    owner = threading.current_thread()
    owner.compiles = True
    assert said(progress, 0.0) == said(progress, 9.0) == []
    assert said(progress, 10.0) == ["compiling for 10 s; other peers wait for this one"]
    assert said(progress, 39.0) == []
    assert said(progress, 40.0) == ["compiling for 40 s; other peers wait for this one"]
    owner.compiles = False
    assert said(progress, 45.0) == ["compiled, in 45 s"]
    assert said(progress, 46.0) == []
    owner.compiles = True
    said(progress, 50.0)
    owner.compiles = False
    assert said(progress, 59.0) == []  # a short one is none


def test_a_peer_alone_makes_nobody_wait(progress):
    threading.current_thread().compiles = True
    assert said(progress, 0.0, world=1) == said(progress, 20.0, world=1) == []


def test_a_fetch_is_said_with_its_rate_and_what_is_left(progress):
    waits = {"state": _progress.FETCHING, "t": "data"}
    with progress.state_of("state", 300_000_000):
        assert said(progress, 0.0, waits, received=7_000_000) == []
        assert said(progress, 6.0, waits, received=127_000_000) == [
            "state: the state is being fetched: 120 of 300 MB, 20.0 MB/s, "
            "at most 9 s left"
        ]
        assert said(progress, 7.0, waits, received=147_000_000) == []
    assert said(progress, 15.0, {}, received=307_000_000) == [
        "state: the state is here: 300 MB in 15 s, 20.0 MB/s"
    ]
    assert said(progress, 16.0) == []
    said(progress, 20.0, waits, received=0)
    assert "fetched: 10 MB, 2.0 MB/s" in said(progress, 25.0, waits, 10_000_000)[0]


def test_a_thread_in_jaxs_compiler_is_seen(monkeypatch):
    from jax._src import compiler

    seen, real = [], compiler.backend_compile_and_load

    def slow(*args, **named):
        other = threading.Thread(target=lambda: seen.append(_progress.compiles(main)))
        other.start()
        other.join()
        return real(*args, **named)

    main = threading.current_thread()
    assert not _progress.compiles(main)
    monkeypatch.setattr(compiler, "backend_compile_and_load", slow)
    new = secrets.randbits(30)  # so no cache has it
    jax.jit(lambda x: x * 3 + new)(np.ones(3)).block_until_ready()
    assert seen and all(seen)


def test_the_core_says_a_fetch_by_the_words_that_are_looked_for():
    with Cluster(2) as cluster:
        sizes = []
        watcher = cluster.comms[0].watcher
        kept = watcher.progress.state_of

        def noted(tag, size):
            sizes.append((tag, size))
            return kept(tag, size)

        watcher.progress.state_of = noted
        cluster.run(lambda comm, i: comm.sync_state(np.ones(10, np.float32)))
    assert sizes == [("state", 40)]
