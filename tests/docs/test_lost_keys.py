"""docs/lost-keys.md: its commands do what it says, in the order of the page."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import jccl
from jccl import _native
from jccl.settings import read_token
from tests.docs.markdown import ROOT, blocks
from tests.python.test_cli import invoke

PAGE = ROOT / "docs" / "lost-keys.md"


class Run:
    """A master with a secret, and the operator of its run."""

    def __init__(self, folder, monkeypatch, secret):
        monkeypatch.chdir(folder)
        self.folder = folder
        token = read_token(None, folder / secret)
        self.master = _native.core().Master.start(token=token)
        monkeypatch.setenv("JCCL_MASTER", self.master.address)
        monkeypatch.setenv("JCCL_TOKEN_FILE", secret)

    def join(self, token, key):
        comm = jccl.connect(
            self.master.address,
            site="paris",
            security=jccl.Security(
                token_file=self.folder / token, key_file=self.folder / key
            ),
        )
        comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=20))
        return comm

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.master.stop()


def carry_out(number):
    """The commands of a block of the page."""
    [*pages] = [block for block in blocks(PAGE) if block.language == "sh"]
    for line in pages[number].text.splitlines():
        words = []
        for word in shlex.split(line):
            file = re.fullmatch(r"\$\(cat (\S+)\)", word)
            words.append(Path(file[1]).read_text().strip() if file else word)
        assert words[0] == "jccl", line
        done = invoke(*words[1:])
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"


def test_each_case_is_mended_by_its_commands(tmp_path, monkeypatch):
    for words in (
        ["token", "--file", str(tmp_path / "run.secret")],
        ["token", "create", "--from", str(tmp_path / "run.secret"), "--site", "paris"]
        + ["--file", str(tmp_path / "paris.token")],
    ):
        assert invoke(*words).exit_code == 0
    with Run(tmp_path, monkeypatch, "run.secret") as run:
        run.join("paris.token", "a.key").close()
        with pytest.raises(jccl.BannedError, match="used by 1 key"):
            run.join("paris.token", "b.key")  # the file a.key is gone
        carry_out(1)
        comm = run.join("paris-2.token", "b.key")
        carry_out(2)  # b.key is stolen
        with pytest.raises(jccl.BannedError, match="its key was stolen"):
            comm.all_reduce(np.ones(4, np.float32), round=jccl.Round(deadline=20))
        comm.close()
        run.join("paris-3.token", "c.key").close()
        carry_out(3)
        with pytest.raises(jccl.BannedError, match="was revoked"):
            run.join("paris.token", "a.key")
        run.join("paris-4.token", "d.key").close()
    carry_out(4)
    with Run(tmp_path, monkeypatch, "new.secret") as run:
        with pytest.raises(jccl.Error):
            run.join("paris-4.token", "d.key")
        run.join("paris-5.token", "d.key").close()
