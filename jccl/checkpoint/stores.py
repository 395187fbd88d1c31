"""Where checkpoints lie: a folder of a file system, or a bucket of an object store.

Both hold files by names like `000000000020/eu/checkpoint.json`. `put` is entire or not
at all, also when the machine loses its power; `fill` and `opened` are for what orbax
writes and reads in a folder of this machine. Any thread; refuses addresses it does not
know, and raises IoError when a store stays away for a minute.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jccl.checkpoint import moments
from jccl.errors import DamagedError, IoError

PATIENCE_S = 60.0  # for an object store that is away
_DRIVERS = {"s3": "s3", "gs": "gcs"}
_FINAL = re.compile(
    r"NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED|INVALID_ARGUMENT|"
    r"NoSuchBucket|AccessDenied"
)


class Kept(NamedTuple):
    """What a file has to be."""

    size: int
    sha256: str


class Store(Protocol):
    where: str

    def names(self) -> list[str]:
        """Of all files, in order."""

    def read(self, name: str) -> bytes:
        """FileNotFoundError if there is none."""

    def put(self, name: str, data: bytes) -> None:
        """Entire or not at all, and there to stay."""

    def fill(self, folder: str, make: Callable[[Path], None]) -> dict[str, Kept]:
        """`make` writes files into an empty folder; what they are, by name. All are
        there to stay."""

    def opened(
        self, folder: str, files: Mapping[str, Kept]
    ) -> contextlib.AbstractContextManager[Path]:
        """The files of `folder` on this machine, each one looked at: DamagedError."""

    def remove(self, names: Iterable[str]) -> None:
        """In this order; those that are gone already are no fault."""


def open_store(where: str | os.PathLike[str]) -> Store:
    """Of a path, `s3://bucket/path` or `gs://bucket/path`."""
    text = os.fspath(where)
    scheme, found, _ = text.partition("://")
    if not found:
        return Folder(text)
    if scheme not in _DRIVERS:
        raise ValueError(f"{text!r}: use a path, s3://BUCKET/PATH or gs://BUCKET/PATH")
    return Bucket(text)


def is_bucket(where: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(where)


class Folder:
    """Of a file system, this machine's or one that several mount."""

    def __init__(self, path: str) -> None:
        self._root = Path(path).absolute()
        self.where = str(self._root)

    def names(self) -> list[str]:
        found = [
            (Path(folder) / file).relative_to(self._root).as_posix()
            for folder, _, files in os.walk(self._root)
            for file in files
        ]
        return sorted(found)

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        other = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with other.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        moments.reached("marker-written")
        other.replace(path)
        self._keep_folders(path.parent)

    def fill(self, folder: str, make: Callable[[Path], None]) -> dict[str, Kept]:
        top = self._root / folder
        top.mkdir(parents=True)
        try:
            make(top)
        except BaseException:
            shutil.rmtree(top, ignore_errors=True)
            self._remove_empty(top.parent)
            raise
        moments.reached("item-made")
        kept = {}
        for path in _files_below(top):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                kept[path.relative_to(self._root).as_posix()] = _kept_of(file)
            moments.reached("file-kept")
        for below, _, _ in os.walk(top):
            _sync(Path(below))
        self._keep_folders(top.parent)
        return kept

    @contextlib.contextmanager
    def opened(self, folder: str, files: Mapping[str, Kept]) -> Iterator[Path]:
        for name, kept in files.items():
            try:
                with (self._root / name).open("rb") as file:
                    _check(name, _kept_of(file), kept)
            except FileNotFoundError:
                raise DamagedError(f"{name} is missing") from None
            moments.reached("restore-file-checked")
        yield self._root / folder

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._root / name
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)

    def _remove_empty(self, lowest: Path) -> None:
        for folder in (lowest, *lowest.parents):
            if folder == self._root:
                break
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # not empty
                _sync(folder)
                break

    def _keep_folders(self, lowest: Path) -> None:
        """Their entries: a new folder is lost with its parent's."""
        for folder in (lowest, *lowest.parents):
            _sync(folder)
            if folder == self._root.parent:
                break


class Bucket:
    """Of an object store, by tensorstore. Credentials and region as AWS's and Google's
    own programs find them; AWS_ENDPOINT_URL names another S3."""

    def __init__(self, url: str) -> None:
        self.where = url.rstrip("/")
        scheme, _, rest = url.partition("://")
        bucket, _, path = rest.partition("/")
        path = path.strip("/")
        spec: dict[str, Any] = {
            "driver": _DRIVERS[scheme],
            "bucket": bucket,
            "path": f"{path}/" if path else "",
        }
        retries = {"max_retries": 3, "initial_delay": "100ms", "max_delay": "1s"}
        context = {f"{_DRIVERS[scheme]}_request_retries": retries}
        if scheme == "s3":
            spec.update(_endpoint())
        self._spec, self._context = spec, context
        self._opened: Any = None

    @property
    def _kv(self) -> Any:
        if self._opened is None:
            import tensorstore as ts

            context = ts.Context(self._context)
            self._opened = ts.KvStore.open(self._spec, context=context).result()
        return self._opened

    def names(self) -> list[str]:
        found = self._do("list", lambda: self._kv.list())
        return sorted(name.decode() for name in found)

    def read(self, name: str) -> bytes:
        got = self._do(name, lambda: self._kv.read(name))
        if got.state == "missing":
            raise FileNotFoundError(f"{self.where}/{name}")
        return bytes(got.value)

    def put(self, name: str, data: bytes) -> None:
        moments.reached("marker-written")
        self._put(name, data)

    def _put(self, name: str, data: bytes) -> None:
        self._do(name, lambda: self._kv.write(name, data))

    def fill(self, folder: str, make: Callable[[Path], None]) -> dict[str, Kept]:
        kept = {}
        with tempfile.TemporaryDirectory(prefix="jccl-checkpoint-") as top:
            make(Path(top))
            moments.reached("item-made")
            for path in _files_below(Path(top)):
                name = f"{folder}/{path.relative_to(top).as_posix()}"
                with path.open("rb") as file:
                    kept[name] = _kept_of(file)
                self._put(name, path.read_bytes())
                moments.reached("file-kept")
        return kept

    @contextlib.contextmanager
    def opened(self, folder: str, files: Mapping[str, Kept]) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="jccl-checkpoint-") as top:
            for name, kept in files.items():
                try:
                    data = self.read(name)
                except FileNotFoundError:
                    raise DamagedError(f"{name} is missing") from None
                sha256 = hashlib.sha256(data).hexdigest()
                _check(name, Kept(len(data), sha256), kept)
                path = Path(top) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                moments.reached("restore-file-checked")
            yield Path(top) / folder

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._do(name, functools.partial(self._kv.write, name, None))

    def _do(self, what: str, begin: Callable[[], Any]) -> Any:
        """Again and again while the store is away or refuses, for a minute."""
        end, pause = time.monotonic() + PATIENCE_S, 0.1
        while True:
            try:
                return begin().result()
            except (ValueError, RuntimeError, OSError, KeyError) as fault:
                text = str(fault)
                if _FINAL.search(text) or time.monotonic() + pause > end:
                    raise IoError(f"{self.where}: {what}: {text}") from fault
            time.sleep(pause)
            pause = min(2 * pause, 5.0)


def _endpoint() -> dict[str, str]:
    """Of S3, where it is not Amazon's."""
    at = os.environ
    region = at.get("AWS_REGION") or at.get("AWS_DEFAULT_REGION")
    url = at.get("AWS_ENDPOINT_URL_S3") or at.get("AWS_ENDPOINT_URL")
    if url:
        return {"endpoint": url.rstrip("/"), "aws_region": region or "us-east-1"}
    return {"aws_region": region} if region else {}


def _files_below(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*") if path.is_file())


def _kept_of(file: Any) -> Kept:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Kept(os.fstat(file.fileno()).st_size, digest)


def _check(name: str, found: Kept, wanted: Kept) -> None:
    if found.size != wanted.size:
        raise DamagedError(f"{name} has {found.size} bytes instead of {wanted.size}")
    if found != wanted:
        raise DamagedError(f"{name} differs from what was written")


def _sync(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
