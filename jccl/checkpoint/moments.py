"""Named moments of saving and restoring, at which tests end the process.

Nothing but tests sets the hook: in the product `reached` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

MOMENTS = (
    "save-begun",
    "item-made",  # its files are written, and may be lost with the machine's power
    "file-kept",  # one of them is safe and digested
    "item-kept",  # all of them
    "marker-written",  # under another name
    "marker-kept",  # the checkpoint is complete
    "prune-begun",
    "prune-marker-gone",  # the oldest one is no checkpoint any more
    "prune-file-gone",
    "prune-ended",
    "restore-begun",
    "restore-file-checked",
    "restore-item-read",
    "restore-ended",
)

hook: Callable[[str], None] | None = None


def reached(moment: str) -> None:
    if hook is not None:
        hook(moment)
