"""Checkpoints of sites of several processes: what each saves, and when it counts."""

import hashlib
import json
import logging
import threading

import pytest
from click.testing import CliRunner

from jccl.checkpoint import moments, records, stores
from jccl.cli import group
from jccl.errors import DamagedError, InvalidError
from tests.paper_sites import site, together


@pytest.fixture(autouse=True)
def lines(caplog):
    caplog.set_level(logging.INFO, "jccl")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "jccl"]


def command(*args):
    done = CliRunner().invoke(group, ["checkpoint", *map(str, args)])
    return done.exit_code, done.output


def all_save(processes, number, **options):
    return together(*[lambda p=p: p.save(number, **options) for p in processes])


def all_restore(processes, **options):
    return together(*[lambda p=p: p.restore(**options) for p in processes])


def numbers(folder):
    return [one.number for one in records.wholes(records.find(stores.Folder(folder)))]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_what_two_processes_saved_comes_back_in_any_number(tmp_path, processes):
    two = site(tmp_path)
    assert all_save(two, 1) == [True, True]
    assert all_save(two, 2) == [True, True]
    assert all_restore(site(tmp_path, processes)) == [2] * processes
    assert all_restore(site(tmp_path, processes), number=1) == [1] * processes


def test_nobody_saves_what_another_one_holds(tmp_path):
    all_save(site(tmp_path), 3)
    one, other = [r.record for r in records.find(stores.Folder(str(tmp_path)))]
    assert [one.held, other.held] == [range(2), range(2, 4)]
    assert {"own.alike"} == {i for i in one.items if i.startswith("own.")}
    assert not {i for i in other.items if i.startswith("own.")}
    shared = [{i for i in r.items if i.startswith("shared")} for r in (one, other)]
    assert shared[0] == {"shared.0", "shared.1", "shared.0.flat", "shared.1.flat"}
    assert shared[1] == {"shared.2", "shared.3", "shared.2.flat", "shared.3.flat"}


class Killed(BaseException):
    pass


@pytest.fixture
def kill(monkeypatch):
    """Ends what a process does at its n-th time of a moment, in its thread of saving
    and its own."""

    def at(process, moment, count=1):
        pool = process.checkpoints._thread
        pool.submit(int).result()  # its thread is known from here on
        left = [count]

        def hook(reached):
            mine = threading.current_thread() in pool._threads
            if mine and reached == moment:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed(moment)

        monkeypatch.setattr(moments, "hook", hook)

    yield at
    moments.hook = None


SAVING = [one for one in moments.MOMENTS if not one.startswith("restore")]


@pytest.mark.parametrize(
    "place, moment", [(at % 2, moment) for at, moment in enumerate(SAVING)]
)
def test_at_no_moment_of_a_save_is_there_less_than_one_checkpoint(
    tmp_path, kill, moment, place
):
    """Also with keep=1, when what was before goes as the new one is there. Of either
    process at any moment: `tests.stress.site_checkpoints`."""
    before = site(tmp_path, keep=1)
    all_save(before, 1)
    kill(before[place], moment)
    ends = all_save(before, 2)
    # What a last process found to remove depends on who of the two ended first.
    assert isinstance(ends[place], Killed) or moment.startswith("prune")
    assert not isinstance(ends[1 - place], Exception)
    there = all_restore(site(tmp_path))
    is_kept = SAVING.index(moment) >= SAVING.index("marker-kept")
    assert there == [2, 2] if is_kept else [1, 1]
    after = site(tmp_path, keep=1)
    all_restore(after)
    assert all_save(after, 3) == [True, True]
    assert numbers(str(tmp_path)) == [3]
    assert {path.name for path in tmp_path.iterdir()} == {f"{3:012d}"}


def test_a_portion_without_the_others_is_no_checkpoint_and_no_damage(
    tmp_path, kill, lines
):
    first = site(tmp_path)
    kill(first[1], "save-begun")
    all_save(first, 1)
    assert all_restore(site(tmp_path)) == [0, 0], "it was the first one"
    code, output = command("verify", tmp_path)
    assert code == 0 and "incomplete: other processes of the site" in output
    assert "incomplete" in command("list", tmp_path)[1]
    code, output = command("prune", tmp_path, "--keep", "1", "--incomplete")
    assert output.startswith("removed checkpoint 1 of eu, parts 0 to 1 of 4")
    assert not list(tmp_path.iterdir())


def test_with_one_damaged_portion_all_processes_take_the_one_before(tmp_path, lines):
    two = site(tmp_path)
    all_save(two, 1)
    all_save(two, 2)
    (newest,) = [
        one.record
        for one in records.find(stores.Folder(str(tmp_path)))
        if one.number == 2 and one.part == 2
    ]
    name = next(n for n in newest.files_of("shared.3") if "/d/" in n)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert all_restore(site(tmp_path)) == [1, 1]
    assert sum("is refused" in line for line in lines()) == 1, "by who holds it"
    ends = all_restore(site(tmp_path), number=2)
    assert all(isinstance(end, DamagedError) for end in ends)
    code, output = command("verify", tmp_path)
    assert code == 1 and "2 of eu, parts 2 to 3 of 4: " in output


def test_own_parts_that_are_damaged_come_from_the_checkpoint_before(tmp_path, lines):
    two = site(tmp_path)
    all_save(two, 1)
    all_save(two, 2)
    for path in tmp_path.glob("*2/eu,2+2.*/*/own/d/*"):
        path.write_bytes(b"")
    back = site(tmp_path)
    states = together(
        *[lambda p=p: p.checkpoints.restore(_empty(p), None) for p in back]
    )
    for state, data in states:
        assert int(state[1].rounds) == 2 and int(state[1].inner[1]["count"]) == 1
        assert data["at"] == 1
    assert sum("eu's own part comes from checkpoint 1" in x for x in lines()) == 2


def _empty(process):
    from tests.paper_sites import state_of

    return state_of(0, process.mesh)


def test_while_one_process_still_writes_no_process_saves(tmp_path, monkeypatch, lines):
    two = site(tmp_path)
    going, held = threading.Event(), threading.Event()
    slow = two[1].checkpoints._thread
    slow.submit(int).result()

    def hook(moment):
        if moment == "item-made" and threading.current_thread() in slow._threads:
            going.set()
            assert held.wait(60)

    monkeypatch.setattr(moments, "hook", hook)
    all_save(two, 1, wait=False)
    assert going.wait(60)
    two[0].checkpoints.wait()
    assert all_save(two, 2, wait=False) == [False, False]
    assert sum("checkpoint 2 is left out: 1 is still" in x for x in lines()) == 2
    held.set()
    two[1].checkpoints.wait()
    assert all_save(two, 3) == [True, True]
    assert numbers(str(tmp_path)) == [1, 3]


def test_what_differs_by_mistake_is_refused_on_all_processes(tmp_path):
    two = site(tmp_path)
    ends = together(
        *[lambda p=p, i=i: p.save(1, data={"i": i}) for i, p in enumerate(two)]
    )
    assert all("data= differs between" in str(end) for end in ends)
    assert all(isinstance(end, InvalidError) for end in ends)
    assert all_save(two, 2) == [True, True]


def test_processes_at_two_revisions_save_nothing_until_they_agree(tmp_path):
    two = site(tmp_path)
    all_save(two, 1)
    publish = two[1].comm.publish_on_paper
    two[1].comm.publish_on_paper = lambda state, number: publish(state, number + 1)
    assert all_save(two, 2) == [False, False]
    two[1].comm.publish_on_paper = publish
    assert all_save(two, 3) == [True, True]


def test_processes_that_see_two_folders_are_refused(tmp_path):
    wheres = {0: tmp_path / "here", 1: tmp_path / "there"}
    ends = all_restore(site(None, wheres=wheres))
    assert all("do not see the same" in str(end) for end in ends)


def test_a_place_that_one_process_cannot_write_is_said_on_all(tmp_path):
    (tmp_path / "file").write_text("")
    ends = all_restore(site(None, wheres=dict.fromkeys(range(2), tmp_path / "file")))
    assert isinstance(ends[0], OSError) and not isinstance(ends[0], InvalidError)
    assert "another process of this site has no access" in str(ends[1])


def test_sites_that_share_a_place_save_the_shared_part_once(tmp_path):
    eu = site(tmp_path, shared=True, ids=(1, 2), keep=1)
    us = site(tmp_path, shared=True, ids=(2, 1), keep=1, site="us")
    for number in (1, 2):
        all_save(eu, number)
        all_save(us, number)
    found = records.wholes(records.find(stores.Folder(str(tmp_path))))
    assert {(one.site, one.number, one.holds("shared")) for one in found} == {
        ("eu", 2, True),
        ("us", 2, False),
    }
    assert all_restore(site(tmp_path, shared=True, site="us", ids=(2, 1))) == [2, 2]


def test_another_number_of_parts_and_devices_takes_it_too(tmp_path):
    all_save(site(tmp_path, devices=4), 5)
    assert all_restore(site(tmp_path, parts=2, devices=8)) == [5, 5]
    assert all_restore(site(tmp_path, 1, devices=1)) == [5]


def test_of_two_saves_of_one_revision_the_later_one_comes_back(tmp_path):
    two = site(tmp_path)
    for turn in range(6):
        ends = together(
            *[lambda p=p, n=turn: p.save(1, now=True, data={"n": n}) for p in two]
        )
        assert ends == [True, True]
    states = together(
        *[lambda p=p: p.checkpoints.restore(_empty(p), None) for p in site(tmp_path)]
    )
    assert [data["n"] for _, data in states] == [5, 5]


@pytest.mark.parametrize("moment", ["restore-item-read", "find"])
def test_a_fault_of_one_process_in_a_restore_ends_it_on_all(
    tmp_path, monkeypatch, moment
):
    all_save(site(tmp_path), 1)
    two = site(tmp_path)
    theirs = threading.local()

    def fail(reached="find"):
        if reached == moment and getattr(theirs, "place", 0) == 1:
            raise OSError(5, "Input/output error")

    def restore(place):
        theirs.place = place
        return two[place].restore()

    monkeypatch.setattr(moments, "hook", fail)
    find = records.find
    monkeypatch.setattr(records, "find", lambda store: (fail(), find(store))[1])
    ends = together(lambda: restore(0), lambda: restore(1))
    assert isinstance(ends[1], OSError) and "Input/output" in str(ends[1])
    assert "another process of this site cannot go on" in str(ends[0])


def rewritten(change):
    def write(path):
        said = json.loads(path.read_bytes())["record"]
        change(said)
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps({"record": said, "sha256": sha256}))

    return write


WRONG = {
    "deep": lambda path: path.write_text("[" * 100_000),
    "link": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "list": rewritten(lambda said: said.update(leaves=[])),
    "digests": rewritten(lambda said: said["revisions"][0].__setitem__(2, "")),
    "shape": rewritten(lambda said: said["leaves"]["diloco"][0].__setitem__(2, [-1])),
    "parts": rewritten(lambda said: said["portion"].update(parts=0)),
    "cuts": rewritten(lambda said: said["portion"]["cuts"].update({"no": 7})),
    "boxes": rewritten(lambda said: said["portion"].update(boxes={"no": [[[0, 1]]]})),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_marker_of_nonsense_is_damage_and_the_one_before_it_counts(tmp_path, wrong):
    """Also one whose sum is right: somebody has written it."""
    two = site(tmp_path)
    all_save(two, 1)
    all_save(two, 2)
    (path,) = tmp_path.glob("*2/eu,2+*/checkpoint.json")
    WRONG[wrong](path)
    assert all_restore(site(tmp_path)) == [1, 1]
    code, output = command("verify", tmp_path)
    assert code == 1 and "1 of 4 damaged" in output
    assert command("list", tmp_path)[0] == 0
