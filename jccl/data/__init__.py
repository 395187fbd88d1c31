"""Data that survives dynamic membership: see `jccl.data.Plan`."""

from jccl.data.plan import Plan
from jccl.data.pool import Form, Pool, Share
from jccl.data.shuffle import shuffled

__all__ = ["Form", "Plan", "Pool", "Share", "shuffled"]
