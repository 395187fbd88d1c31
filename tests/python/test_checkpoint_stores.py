"""Checkpoints in an object store: a real S3 API, with faults on the way to it."""

import itertools
import threading
import time

import pytest
from click.testing import CliRunner

from jccl.checkpoint import moments, records, stores
from jccl.cli import group
from jccl.errors import IoError
from tests.paper_run import Site
from tests.python.object_store import KEYS, Moto, Way


@pytest.fixture(scope="module")
def moto(tmp_path_factory):
    server = Moto(tmp_path_factory.mktemp("moto") / "log").start()
    yield server
    server.kill()


@pytest.fixture
def way(moto, monkeypatch):
    opened = Way(moto).open()
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": opened.url}.items():
        monkeypatch.setenv(name, value)
    yield opened
    opened.close()


_numbers = itertools.count()


@pytest.fixture
def bucket():
    return f"s3://runs/{next(_numbers)}"


def command(*args):
    done = CliRunner().invoke(group, ["checkpoint", *args])
    return done.exit_code, done.output


def test_a_checkpoint_goes_to_a_bucket_and_comes_back(way, bucket):
    site = Site(bucket, keep=2, shared=False)
    for number in (1, 2, 3):
        site.save(number)
    assert Site(bucket).restore() == 3
    code, said = command("verify", bucket)
    assert (code, said) == (0, "checkpoint 2 of eu: whole\ncheckpoint 3 of eu: whole\n")
    markers = [path for method, path in way.requests if method == "PUT"]
    assert markers[-1].endswith("/checkpoint.json"), "the marker is written last"


@pytest.mark.parametrize("fault", [500, 503, "cut"])
def test_answers_that_fail_or_are_lost_are_asked_for_again(way, bucket, fault):
    way.fault = lambda count, method: fault if count % 3 == 0 else None
    Site(bucket).save(7)
    assert Site(bucket).restore() == 7
    assert len(way.requests) > 20


def test_a_server_that_is_away_for_a_while_is_waited_for(way, bucket):
    site = Site(bucket)
    site.save(1)
    way.close()
    site.save(2, wait=False)
    threading.Timer(1.0, way.open).start()
    site.checkpoints.wait()
    assert Site(bucket).restore() == 2


def test_a_server_that_is_killed_within_a_save_and_its_disk_lost(tmp_path, monkeypatch):
    server = Moto(tmp_path / "log").start()
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server.url()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "PATIENCE_S", 1.0)
    site = Site("s3://runs/lost")
    site.save(1)

    def kill(moment):
        if moment == "item-made":
            server.kill()

    monkeypatch.setattr(moments, "hook", kill)
    with pytest.raises(IoError, match="s3://runs/lost"):
        site.save(2)
    monkeypatch.setattr(moments, "hook", None)
    server.start()
    assert Site("s3://runs/lost").restore() == 0
    site.save(3)
    assert Site("s3://runs/lost").restore() == 3
    server.kill()


def test_a_bucket_that_is_not_there_is_said_at_once(way):
    begun = time.monotonic()
    with pytest.raises(IoError, match="s3://nowhere/run"):
        Site("s3://nowhere/run").save(1)
    assert time.monotonic() - begun < stores.PATIENCE_S / 2


def test_an_object_that_was_changed_is_refused_and_the_one_before_taken(
    way, bucket, caplog
):
    site = Site(bucket)
    site.save(1)
    site.save(2)
    store = stores.open_store(bucket)
    (newest,) = [one for one in records.find(store) if one.number == 2]
    name = next(n for n in newest.record.files_of(records.SHARED) if "/shared/d/" in n)
    data = bytearray(store.read(name))
    data[len(data) // 2] ^= 1
    store.put(name, bytes(data))
    assert Site(bucket).restore() == 1
    assert f"{name} differs from what was written" in caplog.text
