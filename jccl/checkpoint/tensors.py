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

    context = ts.Context()  # one database for all
    with ts.Transaction() as whole:
        opened = [
            ts.open(
                _spec(folder, name),
                create=True,
                dtype=array.dtype,
                shape=array.shape,
                chunk_layout=_layout(array),
                transaction=whole,
                context=context,
            )
            for name, array in arrays.items()
            if array.size
        ]
        some = [array for array in arrays.values() if array.size]
        written = [
            one.result().write(array) for one, array in zip(opened, some, strict=True)
        ]
        for one in written:
            one.result()


def read(folder: Path) -> dict[str, np.ndarray]:
    import tensorstore as ts

    if not (folder / "manifest.ocdbt").exists():  # it would be read as an empty one
        raise FileNotFoundError(f"{folder}/manifest.ocdbt")
    context = ts.Context()
    database = ts.KvStore.open(_database(folder), context=context)
    keys = database.result().list().result()
    found = [key.decode() for key in keys if key.endswith(_END.encode())]
    names = [urllib.parse.unquote(key.removesuffix(_END)) for key in found]
    opened = [ts.open(_spec(folder, name), context=context) for name in names]
    reads = [one.result().read() for one in opened]
    return {
        name: np.asarray(one.result()) for name, one in zip(names, reads, strict=True)
    }


def _layout(array: np.ndarray) -> Any:
    import tensorstore as ts

    elements = max(_CHUNK_BYTES // array.itemsize, 1)
    grid = ts.ChunkLayout.Grid(elements_soft_constraint=elements)
    return ts.ChunkLayout(chunk=grid)


def _database(folder: Path) -> dict[str, Any]:
    return {
        "driver": "ocdbt",
        "base": {"driver": "file", "path": f"{folder}/"},
        "target_data_file_size": _FILE_BYTES,
    }


def _spec(folder: Path, name: str) -> dict[str, Any]:
    where = f"{urllib.parse.quote(name, safe='')}/"  # a leaf may be named as a folder
    return {"driver": "zarr3", "kvstore": {**_database(folder), "path": where}}
