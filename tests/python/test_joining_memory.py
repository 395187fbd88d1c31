"""A joiner's memory stays below the bound that docs/settings.md states."""

from benchmarks.memory import joined
from jccl.testing import Processes

PARAMETERS = 1 << 23
STATE = 4.0  # bytes of each


def test_a_joiner_holds_three_times_the_state_over_its_own_arrays():
    with Processes(start_peers=1) as run:
        said = joined(run.address, "jax", PARAMETERS)
    # And what else a process allocates meanwhile: 2 MiB here.
    assert STATE < said["peak"] < 3 * STATE + 0.5
    assert said["standing"] < 2 * STATE + 0.5
