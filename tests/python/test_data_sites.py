"""Sites of several processes: each reads the rows of its own devices, and no others, by
the functions of docs/data.md."""

import json
import subprocess
import sys

import numpy as np

import jccl
from benchmarks.groups import free_port
from tests.docs.markdown import ROOT, blocks

PROGRAM = """
import json, sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import jccl.data

address, process, functions = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(address, 2, process)


class Source:
    read = []

    def __len__(self):
        return 1000

    def __getitem__(self, ids):
        self.read += ids.tolist()
        return ids.astype(np.float32)


source = Source()
exec(functions)
mesh = jax.make_mesh((len(jax.devices()),), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))
ids = ids_of(3, 1, 2, 16)
x = on_mesh(ids, rows)
assert x.shape == (16,)
print(json.dumps({"ids": ids.tolist(), "read": source.read}))
"""


def functions():
    page = blocks(ROOT / "docs" / "data.md")
    (text,) = (block.text for block in page if "def on_mesh(" in block.text)
    return text[text.index("def ids_of") : text.index("mesh = ")]


def test_each_process_reads_the_rows_of_its_own_devices():
    address = f"127.0.0.1:{free_port()}"
    argv = [sys.executable, "-c", PROGRAM, address]
    processes = [
        subprocess.Popen(
            [*argv, str(process), functions()],
            stdout=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    try:
        said = [json.loads(one.communicate(timeout=120)[0]) for one in processes]
    finally:
        for one in processes:
            one.kill()
    ids = said[0]["ids"]
    assert said[1]["ids"] == ids and len(set(ids)) == 16
    # A device may ask for its rows more than once, and for no others.
    read = [set(one["read"]) for one in said]
    assert all(len(one) == 8 for one in read) and not read[0] & read[1]
    assert read[0] | read[1] == set(ids)


def test_sites_share_a_pass_whatever_their_processes():
    space = {"np": np, "jccl": jccl, "source": range(1000)}
    exec(functions(), space)
    ids_of = space["ids_of"]
    parts = [ids_of(step, site, 4, 25) for step in range(10) for site in range(4)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
