"""Checkpoints of a run: saved while it trains, looked at before they are restored.

`Checkpoints` is for training scripts; `records` and `reading` serve the command line.
Needs orbax (`pip install 'jccl[checkpoint]'`), which is imported when it is used.
"""

from jccl.checkpoint.keeper import Checkpoints

__all__ = ["Checkpoints"]
