"""`jccl.Checkpoints` on a folder: what is saved and comes back, and what is refused."""

import contextlib
import itertools
import json
import logging
import shutil
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from click.testing import CliRunner

from jccl.checkpoint import Checkpoints, items, moments, records, stores, trees
from jccl.cli import group
from jccl.errors import DamagedError, IoError, MismatchError, ResyncError
from tests.paper_run import Site, same, state_of

LEVEL = logging.INFO


@pytest.fixture(autouse=True)
def lines(caplog):
    caplog.set_level(LEVEL, "jccl")


def command(*args):
    done = CliRunner().invoke(group, ["checkpoint", *map(str, args)])
    return done.exit_code, done.output


def files_of(folder):
    return sorted(p for p in Path(folder).rglob("*") if p.is_file())


def test_every_so_many_steps_one_is_saved_and_the_newest_stay(tmp_path):
    site = Site(tmp_path, every=3, keep=2)
    begun = [number for number in range(1, 14) if site.save(number)]
    assert begun == [3, 6, 9, 12]
    assert {path.name for path in tmp_path.iterdir()} == {f"{n:012d}" for n in (9, 12)}
    again = Site(tmp_path)
    assert again.restore() == 12
    assert not again.save(12), "it is what was restored"
    assert again.checkpoints.restore(state_of(0), None, number=9)[1]["at"] == 9


def test_plain_orbax_reads_what_is_shared(tmp_path):
    Site(tmp_path).save(1)
    (folder,) = tmp_path.glob("*/eu/*/shared")
    tree = ocp.PyTreeCheckpointer().restore(folder)
    wanted = state_of(1)[1]
    np.testing.assert_array_equal(tree["diloco"]["anchor"]["w"], wanted.anchor["w"])
    assert tree["diloco"]["rounds"] == 1


def test_at_no_moment_is_there_a_checkpoint_of_which_something_is_missing(
    tmp_path, monkeypatch
):
    store, seen = stores.open_store(tmp_path), []

    def look(moment):
        whole = [one for one in records.find(store) if one.record]
        for one in whole:
            assert set(one.record.files) < set(one.names), moment
        seen.append((moment, [one.number for one in whole]))

    site = Site(tmp_path, keep=1)
    site.save(1)
    monkeypatch.setattr(moments, "hook", look)
    site.save(2)
    steps = [(moment, there) for moment, there in dict(seen).items()]
    before = [moment for moment, there in steps if there == [1]]
    assert before == [
        *("save-begun", "item-made", "file-kept", "item-kept", "marker-written")
    ]
    assert dict(steps)["marker-kept"] == [1, 2]
    assert {tuple(t) for m, t in seen if "-gone" in m or "ended" in m} == {(2,)}


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif data:
        data[len(data) * 2 // 3] ^= 4
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["a bit", "half", "gone"])
def test_of_a_damaged_checkpoint_no_byte_is_taken_and_the_one_before_it_is(
    tmp_path, caplog, how
):
    whole = tmp_path / "whole"
    site = Site(whole, own=False)
    site.save(1)
    site.save(2)
    hurt = [p.relative_to(whole) for p in files_of(whole / f"{2:012d}")]
    assert len(hurt) > 4
    for number, name in enumerate(hurt):
        copy = tmp_path / f"{number}"
        shutil.copytree(whole, copy)
        if not (copy / name).stat().st_size:
            continue  # nothing in it to damage, and nothing to read
        damage(copy / name, how)
        caplog.clear()
        state, _ = Site(copy, own=False).checkpoints.restore(state_of(0))
        assert int(state[1].rounds) == 1, name
        same(state[1].anchor, state_of(1)[1].anchor)
        assert any(
            "checkpoint 2 of eu" in r.getMessage() and "refused" in r.getMessage()
            for r in caplog.records
            if r.levelno >= logging.WARNING
        ), name


def test_with_nothing_but_damaged_ones_no_training_begins_as_if_there_were_none(
    tmp_path,
):
    Site(tmp_path).save(1)
    for path in tmp_path.glob("*/eu/*/shared/**/d/*"):
        damage(path, "a bit")
    with pytest.raises(DamagedError, match="is whole: 1 of eu"):
        Site(tmp_path).restore()


def test_one_that_was_never_complete_is_nothing(tmp_path, caplog):
    Site(tmp_path).save(1)
    (marker,) = tmp_path.glob("*/eu/checkpoint.json")
    marker.unlink()
    assert Site(tmp_path).restore() == 0
    assert "its marker is not there" in caplog.text
    assert "this peer begins with a new state" in caplog.text


def test_a_marker_with_one_bit_changed_is_none(tmp_path):
    Site(tmp_path).save(1)
    (path,) = tmp_path.glob("*/eu/checkpoint.json")
    data = bytearray(path.read_bytes())
    wanted = records.record_of(bytes(data))
    for place in range(len(data)):
        data[place] ^= 1
        with contextlib.suppress(DamagedError):  # spaces say nothing
            assert records.record_of(bytes(data)) == wanted, place
        data[place] ^= 1


def test_a_marker_is_believed_only_about_itself(tmp_path):
    Site(tmp_path).save(1)
    shutil.copytree(tmp_path / f"{1:012d}", tmp_path / f"{7:012d}")
    found = records.find(stores.open_store(tmp_path))
    assert [(one.number, bool(one.record)) for one in found] == [(7, False), (1, True)]


def test_bytes_that_orbax_makes_into_other_values_have_another_digest(
    tmp_path, monkeypatch, caplog
):
    """Every file is what was written, and yet the arrays are not."""
    site = Site(tmp_path)
    site.save(1)
    read = items.read

    def wrong(path):
        arrays = read(path)
        if "diloco/anchor/w" in arrays:
            arrays["diloco/anchor/w"] = arrays["diloco/anchor/w"] + np.float32(1)
        return arrays

    monkeypatch.setattr(items, "read", wrong)
    with pytest.raises(DamagedError):
        Site(tmp_path).restore()
    assert "was saved, but" in caplog.text


def test_an_edited_state_is_not_saved(tmp_path, caplog):
    site = Site(tmp_path)
    params, state = state_of(1)
    site.comm.publish_on_paper((params, state), 1)
    edited = state._replace(anchor={**state.anchor, "b": state.anchor["b"] + 1})
    site.checkpoints.save((params, edited))
    with pytest.raises(ResyncError, match="revision 1 of diloco"):
        site.checkpoints.wait()
    assert "checkpoint 1 is not saved" in caplog.text
    assert not files_of(tmp_path)


def test_while_one_is_written_the_next_is_left_out_and_training_goes_on(
    tmp_path, monkeypatch, caplog
):
    going, held = threading.Event(), threading.Event()

    def hold(moment):
        if moment == "item-made" and not held.is_set():
            held.set()
            assert going.wait(60)

    monkeypatch.setattr(moments, "hook", hold)
    site = Site(tmp_path)
    assert site.save(1, wait=False) and held.wait(60)
    assert not site.save(2, wait=False)
    assert not site.save(2, wait=False)
    line = "checkpoint 2 is left out: 1 is still being written"
    assert caplog.text.count(line) == 1
    going.set()
    site.checkpoints.wait()
    assert site.save(3) and Site(tmp_path).restore() == 3


def test_a_disk_that_refuses_is_said_and_tried_again(tmp_path, monkeypatch, caplog):
    site = Site(tmp_path)

    def full(folder, arrays):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(items, "write", full)
        with pytest.raises(OSError, match="No space left"):
            site.save(1)
    assert "checkpoint 1 is not saved: [Errno 28] No space" in caplog.text
    assert site.save(2) and Site(tmp_path).restore() == 2
    assert [path.name for path in tmp_path.iterdir()] == [f"{2:012d}"]


def test_a_site_without_a_part_of_its_own_takes_what_is_shared(tmp_path, caplog):
    Site(tmp_path, "eu").save(4)
    fresh = state_of(0, "us")
    state, data = Site(tmp_path, "us").checkpoints.restore(fresh, "at the start")
    same(state[1].jccl_shared(), state_of(4)[1].jccl_shared())
    same(state[1].inner, fresh[1].inner)
    same(state[0]["w"], state_of(4)[1].anchor["w"])
    assert data == "at the start"
    assert "no checkpoint up to 4 has us's own part" in caplog.text


def test_a_site_killed_before_the_others_had_saved_keeps_its_own_part_of_before(
    tmp_path, caplog
):
    for name, numbers in (("eu", (1, 2)), ("us", (1, 2, 3))):
        for number in numbers:
            Site(tmp_path, name, keep=9).save(number)
    state, data = Site(tmp_path, "eu").checkpoints.restore(state_of(0, "eu"))
    same(state[1].jccl_shared(), state_of(3)[1].jccl_shared())
    same(state[1].inner, state_of(2, "eu")[1].inner)
    same(state[0]["w"], state_of(3)[1].anchor["w"])  # on the anchor, as all joiners
    assert data["at"] == 2
    assert "eu's own part comes from checkpoint 2" in caplog.text


def test_those_of_this_run_come_before_newer_ones_of_another(tmp_path, caplog):
    Site(tmp_path, run="a" * 32).save(5)
    Site(tmp_path, run="b" * 32).save(9)
    assert Site(tmp_path, run="a" * 32).restore() == 5
    assert "journal does not know it" not in caplog.text
    assert Site(tmp_path, run="c" * 32).restore() == 9
    assert f"is of run {'b' * 32}" in caplog.text


def test_of_other_runs_the_one_that_saved_last_is_taken(tmp_path):
    for run, number in [("a", 7), ("b", 9), ("a", 8)]:
        Site(tmp_path, run=run * 32).save(number)
    assert Site(tmp_path, run="c" * 32).restore() == 8


def test_a_save_waits_for_the_step_before_it_asks_for_the_revision(tmp_path):
    site = Site(tmp_path)

    class Unfinished(np.ndarray):
        """The counter of a step that still runs."""

        def block_until_ready(self):
            site.comm.publish_on_paper((params, state), 1)
            return self

    params, state = state_of(1)
    running = state.rounds.view(Unfinished)
    assert site.checkpoints.save((params, state._replace(rounds=running)))
    site.checkpoints.wait()
    assert files_of(tmp_path)


def test_another_model_is_refused_by_its_leaf(tmp_path):
    Site(tmp_path).save(1)
    params, state = state_of(0, elements=2000)
    checkpoints = Site(tmp_path).checkpoints
    with pytest.raises(MismatchError, match=r"'diloco/anchor/w' is float32\[100, 10\]"):
        checkpoints.restore((params, state))
    params, state = state_of(0)
    more = state._replace(anchor={**state.anchor, "bias": np.zeros(3, np.float32)})
    with pytest.raises(MismatchError, match="no leaf 'diloco/anchor/bias'"):
        checkpoints.restore((params, more))


def test_a_number_that_is_not_there_is_refused(tmp_path):
    Site(tmp_path).save(1)
    with pytest.raises(DamagedError, match=r"no checkpoint 2 in .*there are \[1\]"):
        Site(tmp_path).restore(number=2)


def test_sites_that_share_a_folder_have_one_copy_of_what_is_shared(tmp_path):
    first = Site(tmp_path, "a", ids=(1, 2), shared=True, keep=2)
    second = Site(tmp_path, "b", ids=(2, 1), shared=True, keep=2)
    for number in (1, 2, 3):
        second.save(number)
        first.save(number)
    found = records.find(stores.open_store(tmp_path))
    held = [(one.number, one.site, sorted(one.record.items)) for one in found]
    assert held == [
        (number, site, ["own", "shared"][: 1 + (site == "a")])
        for number in (2, 3)
        for site in ("a", "b")
    ]
    assert Site(tmp_path, "b").restore() == 3


@pytest.mark.parametrize("site", ["..", ".", "a/b", "eu west", "ü", "a.b"])
def test_a_site_has_one_folder_whatever_its_name(tmp_path, site):
    folder = tmp_path / "here"
    Site(folder, site).save(1)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert len(list(folder.glob("*/*/checkpoint.json"))) == 1
    (one,) = records.find(stores.open_store(folder))
    assert one.site == site and Site(folder, site).restore() == 1


def test_a_peer_in_its_next_life_under_jccl_run_finds_what_it_saved(tmp_path):
    Site(tmp_path, "peer-2").save(3)
    later = Site(tmp_path, "peer-2.1").checkpoints.restore(state_of(0, "peer-2"))
    same(later[0], state_of(3, "peer-2"))


def test_what_was_left_of_a_try_goes_with_the_next_one(tmp_path):
    site = Site(tmp_path)
    site.save(1)
    (folder,) = tmp_path.glob("*/eu")
    (folder / "0000dead").mkdir()
    (folder / "0000dead" / "half").write_bytes(b"x")
    other = tmp_path / f"{2:012d}" / "eu" / "beef"
    other.mkdir(parents=True)
    (other / "half").write_bytes(b"x")
    site.save(3)
    assert not list(tmp_path.rglob("half"))
    assert command("verify", tmp_path)[0] == 0


DATA = [
    7,
    {"file": "a.txt", "at": [1, 2.5, None, True]},
    {"rng": np.arange(4, dtype=np.uint32), "half": jnp.ones(2, jnp.bfloat16)},
]


@pytest.mark.parametrize("data", DATA, ids=["number", "json", "arrays"])
def test_positions_in_the_data_come_back(data):
    back = trees.decoded(json.loads(json.dumps(trees.encoded(data))))
    assert jax.tree.structure(back) == jax.tree.structure(data)
    for got, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(data), strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert np.asarray(got).dtype == np.asarray(wanted).dtype


def test_what_is_no_position_is_refused_in_words():
    with pytest.raises(TypeError, match="key_data"):
        trees.encoded({"key": jax.random.key(0)})
    with pytest.raises(TypeError, match="a set"):
        trees.encoded([{1, 2}])


def test_random_keys_numbers_and_shardings_come_back_as_they_are(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), "x")
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    def made(number):
        params, state = state_of(number)
        params = {**params, "w": jax.device_put(params["w"], place)}
        own = {"key": jax.random.key(number), "step": number}
        return params, state._replace(inner=own)

    site = Site(tmp_path)
    site.comm.publish_on_paper(made(5), 5)
    site.checkpoints.save(made(5), now=True)
    site.checkpoints.wait()
    (params, state), _ = Site(tmp_path).checkpoints.restore(made(0))
    assert params["w"].sharding == place
    np.testing.assert_array_equal(params["w"], state_of(5)[0]["w"])
    assert state.inner["step"] == 5 and isinstance(state.inner["step"], int)
    assert (
        jax.random.bits(state.inner["key"]) == jax.random.bits(jax.random.key(5))
    ).all()


def test_mistakes_are_refused_in_words(tmp_path):
    site = Site(tmp_path)
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoints(site.comm, tmp_path, keep=0)
    with pytest.raises(ValueError, match="ftp://x"):
        Checkpoints(site.comm, "ftp://x")
    with pytest.raises(ValueError, match="set JCCL_SITE"):
        Site(tmp_path, "")
    with pytest.raises(ValueError, match="no state of jccl.diloco"):
        site.checkpoints.save({"w": np.ones(2)})
    params, state = state_of(1)
    with pytest.raises(ValueError, match="never synchronised"):
        site.checkpoints.save((params, state), now=True)
    with pytest.raises(TypeError, match="between steps"):
        jax.jit(
            lambda x: site.checkpoints.save((params, state._replace(inner=x)), now=True)
        )(1.0)
    site.comm.publish_on_paper((params, state), 1)
    two = state._replace(inner={"a/b": np.ones(1), "a": {"b": np.ones(1)}})
    with pytest.raises(ValueError, match="two leaves have the name '1/inner/a/b'"):
        site.checkpoints.save((params, two))
    dots = state._replace(inner={"a.b": np.ones(1), "a": {"b": np.ones(1)}})
    site.checkpoints.save((params, dots))
    with pytest.raises(ValueError, match="another leaf has this name"):
        site.checkpoints.wait()


def test_the_commands_list_verify_and_prune(tmp_path):
    for name, number in itertools.product(("eu", "us"), (1, 2, 3)):
        Site(tmp_path, name, keep=9, own=name == "eu").save(number)
    code, said = command("list", tmp_path)
    assert code == 0 and said.count("revision 3 of diloco (") == 2
    assert said.count("the shared part alone") == 3
    assert command("verify", tmp_path)[0] == 0
    (marker,) = tmp_path.glob(f"{3:012d}/us/checkpoint.json")
    marker.unlink()
    code, said = command("verify", tmp_path)
    assert code == 0 and "checkpoint 3 of us: its marker is not there" in said
    assert command("prune", tmp_path, "--keep", 2) == (
        0,
        "removed checkpoint 1 of eu\nremoved checkpoint 1 of us\n",
    )
    code, said = command("prune", tmp_path, "--keep", 1, "--incomplete")
    assert said.endswith("removed checkpoint 3 of us\n") and "3 of eu" not in said
    assert [path.name for path in tmp_path.iterdir()] == [f"{3:012d}"]
    (data,) = list(tmp_path.glob("*/eu/*/shared/**/d/*"))[:1]
    damage(data, "a bit")
    code, said = command("verify", tmp_path)
    assert code == 1 and "differs from what was written" in said
    assert command("list", tmp_path / "none")[0] == 1


def test_a_missing_folder_of_the_disk_is_an_error_of_the_disk():
    with pytest.raises((IoError, OSError)):
        Site("/proc/nowhere").save(1)


def test_of_a_shared_place_the_lowest_site_writes_what_is_shared_and_others_follow_it(
    tmp_path,
):
    sites = {
        name: Site(tmp_path, name, ids=(own, *others), keep=10, shared=True)
        for name, own, others in (("a", 3, (5, 9)), ("b", 5, (3, 9)), ("c", 9, (3, 5)))
    }

    def saved(number, *names):
        for name in names:
            sites[name].save(number)
        found = records.find(stores.open_store(tmp_path))
        here = [one.record for one in found if one.number == number and one.record]
        assert {one.site for one in here} == set(names)
        return {one.site for one in here if records.SHARED in one.items}

    assert saved(1, "a", "b", "c") == {"a"}
    assert saved(2, "b", "a", "c") == {"a"}
    assert saved(3, "b", "c") == set()  # a hangs: nobody knows yet
    assert saved(4, "b", "c") == {"b"}
    assert saved(5, "c") == saved(6, "c") == set()
    assert saved(7, "c") == {"c"}
    for name in sites:
        assert Site(tmp_path, name).restore(number=2) == 2
