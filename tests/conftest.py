"""Before jax starts: the CPU backend, and a device per in-process peer, since XLA runs
the programs of one device one after another and peers wait for each other. Nothing is
skipped in silence: see skips.py."""

import os
import pathlib
import signal

from tests import skips, xla_flags

# A shell starts what runs in the background with Ctrl-C ignored, and children inherit
# that: without this the tests of Ctrl-C fail there, each after its whole time-out.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Hundreds of processes compile the same small programs.
COMPILED = pathlib.Path(__file__).resolve().parents[1] / "build" / "jax_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        "--xla_cpu_multi_thread_eigen=false",
        # The documents' commands, and examples that start quickly, run with what users
        # have.
        *xla_flags.not_optimised(),
    ]
).strip()


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(skips.Plugin(), "skips")
