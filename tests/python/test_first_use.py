"""`import jccl` looks a name up when it is first used, by whichever thread is first."""

import subprocess
import sys

import pytest

import jccl

# Threads meet at a barrier and then each uses its own names first. A small switch
# interval lets them meet inside the same import on any machine.
RACE = """
import random, sys, threading

sys.setswitchinterval(1e-6)
import jccl

seed, threads = int(sys.argv[1]), 12
names = [name for name in jccl.__all__ if name != "__version__"]
barrier, faults = threading.Barrier(threads), []

def use(index):
    mine = random.Random(threads * seed + index).sample(names, len(names))
    barrier.wait()
    for name in mine:
        try:
            getattr(jccl, name)
        except BaseException as fault:
            faults.append(f"{name}: {fault!r}")

running = [threading.Thread(target=use, args=(index,)) for index in range(threads)]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
sys.exit("\\n".join(faults) or 0)
"""


@pytest.mark.parametrize("seed", range(4))
def test_many_threads_may_be_the_first_to_use_a_name(seed):
    ended = subprocess.run(
        [sys.executable, "-c", RACE, str(seed)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_every_public_name_can_be_used_and_is_listed_once():
    assert sorted(set(jccl.__all__)) == sorted(jccl.__all__)
    assert [name for name in jccl.__all__ if not hasattr(jccl, name)] == []
    assert dir(jccl) == sorted(jccl.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'allreduce'"):
        _ = jccl.allreduce


def test_an_import_alone_loads_neither_jax_nor_the_native_module():
    code = "import sys, jccl; print({'jax', 'numpy', 'jccl._core'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True).strip() == "set()"


ORDER = """
import sys, jccl

class Log:
    def find_spec(self, name, *_):
        seen.append(name)

seen = []
sys.meta_path.insert(0, Log())
jccl.all_reduce
print(seen.index("numpy") < min(seen.index("jax"), seen.index("jccl.functions")))
"""


def test_numpy_is_whole_before_extensions_import_modules_inside_it():
    """Another thread may hold such a module and wait for numpy, which waits for it."""
    command = [sys.executable, "-c", ORDER]
    assert subprocess.check_output(command, text=True).strip() == "True"
