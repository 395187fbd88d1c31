"""What a folder of checkpoints holds when the machine loses its power, at each moment:
of files what was synced, and of folders the names that they had when they were."""

import os
import stat
from pathlib import Path

import pytest

from jccl.checkpoint import moments, records, stores
from jccl.errors import DamagedError
from tests.paper_run import Site


class Disk:
    """Of a folder, what a power cut leaves. Files that were synced stay open, so that
    no number of a file is given to another one."""

    def __init__(self, loses=lambda _path: False):
        self._loses, self._fsync = loses, os.fsync
        self._files, self._folders, self._open = {}, {}, []

    def fsync(self, handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        number = os.fstat(handle)
        if self._loses(path):
            return
        self._fsync(handle)
        if stat.S_ISDIR(number.st_mode):
            with os.scandir(path) as entries:
                there = {one.name: (one.inode(), one.is_dir()) for one in entries}
            self._folders[number.st_ino] = there
        else:
            self._open.append(path.open("rb"))
            self._files[number.st_ino] = path.read_bytes()

    def after_a_cut(self, folder, copy):
        """What is left of `folder`, at `copy`."""
        self._copy(os.stat(folder).st_ino, Path(copy))
        return Path(copy)

    def _copy(self, number, to):
        to.mkdir(parents=True)
        for name, (inode, is_folder) in self._folders.get(number, {}).items():
            if is_folder:
                self._copy(inode, to / name)
            else:
                (to / name).write_bytes(self._files.get(inode, b""))

    def close(self):
        for file in self._open:
            file.close()


def whole(folder):
    """The numbers of the checkpoints there; each that says it is whole has to be."""
    store = stores.open_store(folder)
    found = [one for one in records.find(store) if one.record]
    for one in found:
        with store.opened("", one.record.files):
            pass
    return [one.number for one in found]


def what_cuts_leave(tmp_path, monkeypatch, disk):
    """(moment, number that was told, numbers that a cut leaves, or what is wrong)."""
    cuts, told = [], 0
    monkeypatch.setattr(os, "fsync", disk.fsync)
    (tmp_path / "disk").mkdir()

    def cut(moment):  # on the thread that writes
        if moment.startswith("restore"):  # the look at what is left
            return
        left = disk.after_a_cut(tmp_path / "disk", tmp_path / f"cut {len(cuts)}")
        try:
            there = whole(left / "kept") if (left / "kept").exists() else []
        except DamagedError as fault:
            there = str(fault)
        cuts.append((moment, told, there))

    monkeypatch.setattr(moments, "hook", cut)
    site = Site(tmp_path / "disk" / "kept", keep=1)
    for number in (1, 2, 3):
        site.save(number)
        told = number
        cut("between two")
    disk.close()
    return cuts


def test_a_power_cut_leaves_whole_checkpoints_and_the_newest_that_was_told(
    tmp_path, monkeypatch
):
    cuts = what_cuts_leave(tmp_path, monkeypatch, Disk())
    for moment, told, there in cuts:
        assert isinstance(there, list), (moment, there)
        assert max(there, default=0) in (told, told + 1), (moment, told, there)
    tried = {moment for moment, _, _ in cuts}
    assert {"file-kept", "marker-written", "marker-kept", "prune-ended"} < tried


@pytest.mark.parametrize(
    "loses",
    [
        lambda path: path.is_dir(),
        lambda path: path.is_dir() and path.name == "kept",
        lambda path: path.is_dir() and path.name == "disk",
        lambda path: path.is_file() and path.name.startswith("."),  # the marker's
        lambda path: path.is_file() and not path.name.startswith("."),
    ],
    ids=["folders", "the folder", "its parent", "markers", "items"],
)
def test_what_is_not_synced_is_missed(tmp_path, monkeypatch, loses):
    cuts = what_cuts_leave(tmp_path, monkeypatch, Disk(loses))
    assert any(
        not isinstance(left, list) or told > max(left, default=0)
        for _, told, left in cuts
    )
