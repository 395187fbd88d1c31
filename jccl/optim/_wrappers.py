"""Refuses wrappers that run a transform of jccl and then drop what it returned.

`optax.MultiSteps` calls what it wraps at every micro-step and keeps one result of k.
`optax.apply_if_finite` and similar wrappers skip calls on one peer alone. But the run
has still committed a round whose outcome they throw away. Looks at the callers' frames,
because a transform cannot know what wraps it. Does not see a wrapper of the user's own.
Runs while tracing, on any thread.
"""

from __future__ import annotations

import sys

_DROPPERS = {
    "optax.transforms._accumulation": "optax.MultiSteps",
    "optax.transforms._conditionality": "a conditional transform of optax",
}


def refuse_droppers(name: str) -> None:
    """ValueError if a wrapper that drops calls runs the transform called `name`."""
    frame = sys._getframe(1)
    while frame is not None:
        wrapper = _DROPPERS.get(frame.f_globals.get("__name__", ""))
        if wrapper:
            raise ValueError(
                f"{wrapper} around {name} would drop rounds that the run has "
                f"committed: put it inside instead, as {name}(comm, inner=...), where "
                "it wraps the inner optimizer alone"
            )
        frame = frame.f_back  # type: ignore[assignment]
