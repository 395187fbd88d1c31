"""Data that survives dynamic membership: see `jccl.data.Plan`."""

from jccl.data.feed import Feed, Samples
from jccl.data.plan import Plan
from jccl.data.pool import Form, Pool, Share
from jccl.data.shuffle import shuffled

__all__ = ["Feed", "Form", "Plan", "Pool", "Samples", "Share", "shuffled"]
