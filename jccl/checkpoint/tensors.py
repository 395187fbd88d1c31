"""Named arrays of one process of several in a folder, as tensorstore keeps them: zarr3
in an OCDBT database. Orbax lets the first process of a JAX world alone write what lies
in host memory, so portions are written without it. Arrays without elements are left
out, as `items` does. Any thread.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_CHUNK_BYTES = 64 << 20
_FILE_BYTES = 256 << 20  # a file is held in memory on its way to an object store
_END = "/zarr.json"


def write(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import tensorstore as ts

    with ts.Transaction() as whole:
        for name, array in arrays.items():
            if not array.size:
                continue
            grid = ts.ChunkLayout.Grid(
                elements_soft_constraint=max(_CHUNK_BYTES // array.itemsize, 1)
            )
            opened = ts.open(
                _spec(folder, name),
                create=True,
                dtype=array.dtype,
                shape=array.shape,
                chunk_layout=ts.ChunkLayout(chunk=grid),
                transaction=whole,
            )
            opened.result().write(array).result()


def read(folder: Path) -> dict[str, np.ndarray]:
    import tensorstore as ts

    if not (folder / "manifest.ocdbt").exists():  # it would be read as an empty one
        raise FileNotFoundError(f"{folder}/manifest.ocdbt")
    keys = ts.KvStore.open(_database(folder)).result().list().result()
    names = [key.decode().removesuffix(_END) for key in keys if key.endswith(b".json")]
    return {
        urllib.parse.unquote(name): np.asarray(
            ts.open(_spec(folder, urllib.parse.unquote(name))).result().read().result()
        )
        for name in names
    }


def _database(folder: Path) -> dict[str, Any]:
    return {
        "driver": "ocdbt",
        "base": {"driver": "file", "path": f"{folder}/"},
        "target_data_file_size": _FILE_BYTES,
    }


def _spec(folder: Path, name: str) -> dict[str, Any]:
    where = f"{urllib.parse.quote(name, safe='')}/"  # a leaf may be named as a folder
    return {"driver": "zarr3", "kvstore": {**_database(folder), "path": where}}
