"""Real processes, killed: the journal alone says which samples were counted, and they
are those that the peers wrote down before their steps."""

import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

from jccl.data import Form, Pool
from jccl.testing import Processes, wait_until
from tests.python.counted import judge
from tests.python.killed import FORM
from tests.stress.journal import commits_of

PEER = Path(__file__).with_name("data_peer.py")
ROOT = Path(__file__).parents[2]
TOOK = re.compile(r"^TOOK (\[.*\])$", re.M)


def rows_of(process):
    """(peer, commits before, counts, ids) of each batch that was written down whole."""
    return [json.loads(text) for text in TOOK.findall(process.output())]


def test_kills_of_peers_and_master_lose_no_sample_and_count_none_twice(tmp_path):
    with Processes(start_peers=3, path=tmp_path) as run:

        def start(batch):
            argv = [sys.executable, str(PEER), str(tmp_path), str(batch)]
            path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            return run.peer(argv, PYTHONPATH=path)

        def is_at(process, rounds):
            assert process.running, process.output()
            return any(row[1] >= rounds and row[2] for row in rows_of(process))

        peers = [start(batch) for batch in (2, 3, 5)]
        wait_until(lambda: all(is_at(p, 4) for p in peers), 90, "four commits")
        peers[1].kill()
        there = rows_of(peers[0])[-1][1]
        late = start(4)
        wait_until(lambda: is_at(late, there + 2), 90, "the joiner's commits")
        run.master.kill()
        peers[2].kill()
        run.start_master()
        there = rows_of(late)[-1][1]
        wait_until(lambda: is_at(late, there + 3), 90, "commits after both died")
        there = rows_of(late)[-1][1]
        (tmp_path / "stop").write_text(str(there + 6))
        assert [p.wait() for p in (peers[0], late)] == [0, 0]

        took = defaultdict(list)
        for process in run.peers:
            for peer, rounds, counts, ids in rows_of(process):
                took[peer, rounds] += ids if counts else []
        run.master.kill()  # it holds its journal
        pool, samples = Pool(Form(**FORM)), []
        for commit in commits_of(run.journal):
            record = [(i, round(w)) for i, w in zip(*commit[2:4], strict=True)]
            assert commit.tag == "diloco" and commit.n == pool.rounds + 1
            for peer, count in record:
                share = pool.share(peer)
                expected = share.samples(0, count).tolist() if count else []
                assert took[peer, pool.rounds][:count] == expected
                samples += expected
            pool = pool.after(record)
        judge(samples, pool)
        assert pool.rounds >= 12 and len({peer for peer, _ in took}) >= 4
