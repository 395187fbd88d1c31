"""Named arrays in orbax's format: a folder that plain orbax restores as nested dicts.

Numpy arrays in and out, by names like `diloco/anchor/w`. Arrays without elements are
left out: orbax has no place for them. Any thread, one at a time: orbax takes a process
for one writer.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_CHUNK_BYTES = 64 << 20
_FILE_BYTES = 256 << 20  # a file is held in memory on its way to an object store
_ONE_AT_A_TIME = threading.Lock()


def write(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    ocp, epath = orbax()
    tree = _nested({name: a for name, a in arrays.items() if a.size})
    save = {name: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES) for name in arrays}
    arguments = ocp.args.PyTreeSave(
        tree,
        save_args=_nested({name: save[name] for name in arrays if arrays[name].size}),
        ocdbt_target_data_file_size=_FILE_BYTES,
    )
    with _ONE_AT_A_TIME:
        handler = _handler(ocp)
        handler.save(epath.Path(folder), args=arguments)
        handler.finalize(epath.Path(folder))


def read(folder: Path) -> dict[str, np.ndarray]:
    ocp, epath = orbax()
    with _ONE_AT_A_TIME:
        tree = _handler(ocp).restore(epath.Path(folder), args=ocp.args.PyTreeRestore())
    return _flat(tree)


def orbax() -> tuple[Any, Any]:
    try:
        import orbax.checkpoint as ocp
        from etils import epath
    except ImportError as fault:
        raise ImportError(
            f"jccl.Checkpoints needs orbax: pip install 'jccl[checkpoint]' ({fault})"
        ) from None
    return ocp, epath


def _handler(ocp: Any) -> Any:
    # What was trained does not compress; the processor is the training's.
    return ocp.PyTreeCheckpointHandler(use_zarr3=True, use_compression=False)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    seen: dict[str, str] = {}  # orbax joins the parts of a name with dots
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        other = seen.setdefault(name.replace("/", "."), name)
        *folders, last = name.split("/")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
            if not isinstance(at, dict):
                break
        if other != name or not isinstance(at, dict) or last in at:
            raise ValueError(
                f"leaf '{name}': another leaf has this name, or '{other}'; rename one"
            )
        at[last] = value
    return tree


def _flat(tree: Any, above: str = "") -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        return {above.rstrip("/"): np.asarray(tree)}
    found = {}
    for name, value in tree.items():
        found.update(_flat(value, f"{above}{name}/"))
    return found
