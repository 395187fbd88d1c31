"""Counters and times of a communicator, for loggers, OpenTelemetry and a run log.

`Meter.write` feeds clu, TensorBoard and loggers like that of Weights & Biases;
`observe` feeds OpenTelemetry. `RunLog` writes JSON lines, which `jccl trace` and
`jccl plot` read. None of these packages is needed to import this one.
"""

from jccl.metrics.instruments import observe
from jccl.metrics.meter import Meter, read
from jccl.metrics.run_log import RunLog

__all__ = ["Meter", "RunLog", "observe", "read"]
