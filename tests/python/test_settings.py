"""Settings of the process."""

import platform
import subprocess
import sys

import pytest

HELD = """
import ctypes, resource, sys, jccl
if sys.argv[1] == "keep":
    assert jccl.keep_memory()
size = 64 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
block = libc.malloc(size)
ctypes.memset(block, 1, size)
libc.free(block)
with open("/proc/self/statm") as pages:
    print(int(pages.read().split()[1]) * resource.getpagesize() // size)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's malloc")
@pytest.mark.parametrize("how, blocks", [("keep", 1), ("leave", 0)])
def test_memory_that_is_kept_stays_with_the_process(how, blocks):
    done = subprocess.run(
        [sys.executable, "-c", HELD, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == blocks
