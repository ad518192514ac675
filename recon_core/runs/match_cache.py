"""Results of matching, cached on disk by content: the same candidates are never searched twice."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diskcache
import torch
from torch import Tensor

from recon_core.store.private import close_to_others, private_folder, refuse_links_in, touch_private

SIZE_LIMIT = 2 << 30
"""Bytes; the least recently used entries go first."""
VERSION = 2
"""Part of every key: raise it when the numbers behind a key change their meaning."""

_DIGEST_BYTES = 32
_HASHED_BYTES = 1 << 26


class _BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """Text keys and bytes values only: whatever stands in the folder, nothing is ever unpickled."""

    def get(self, key: Any, raw: bool) -> Any:
        return super().get(key, True)

    def store(self, value: Any, read: bool, key: Any = diskcache.UNKNOWN) -> Any:
        if not isinstance(value, bytes):
            raise TypeError(f"this cache holds bytes, got {type(value).__name__}")
        return super().store(value, read, key=key)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (diskcache.core.MODE_RAW, diskcache.core.MODE_BINARY):
            return b""  # fails its checksum and goes
        return super().fetch(mode, filename, value, read)

    def _write(self, full_path: str, iterator: Iterator[bytes], mode: str, encoding: str | None = None) -> int:
        size = int(super()._write(full_path, iterator, mode, encoding))
        file, top = Path(full_path), Path(self._directory)
        for path in (file, *(above for above in file.parents if above.is_relative_to(top))):
            close_to_others(path)
        return size


class MatchCache:
    """Named tensors by key, below `folder`, which nobody else may read: it holds what leaked.

    A cache is a convenience: one that cannot be opened or written computes instead.
    """

    def __init__(self, folder: Path, size_limit: int = SIZE_LIMIT) -> None:
        self.folder, self._size_limit = folder, size_limit
        self.hits = 0
        self.misses = 0

    @classmethod
    def of_store(cls, root: Path) -> MatchCache:
        return cls(root / ".cache" / "matching")

    def tensors(self, key: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What `compute` gave for this key before, else what it gives now. On the CPU."""
        found = self._read(key)
        if found is not None:
            self.hits += 1
            return found
        self.misses += 1
        made = {name: tensor.cpu().contiguous() for name, tensor in compute().items()}
        self._write(key, made)
        return made

    def _read(self, key: str) -> dict[str, Tensor] | None:
        with _surviving(), self._open() as cache:
            sealed = cache.get(key)
            if sealed is None:
                return None
            found = _unseal(sealed)
            if found is None:
                cache.delete(key)
            return found
        return None

    def _write(self, key: str, tensors: dict[str, Tensor]) -> None:
        with _surviving(), self._open() as cache:
            cache.set(key, _seal(tensors))

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        for folder in (self.folder.parent, self.folder):
            private_folder(folder, parents=True)
            refuse_links_in(folder)
        try:
            cache = self._connect()
        except sqlite3.DatabaseError:  # its index is damaged: start over
            shutil.rmtree(self.folder, ignore_errors=True)
            private_folder(self.folder)
            cache = self._connect()
        with contextlib.closing(cache):
            yield cache

    def _connect(self) -> Any:
        touch_private(self.folder / diskcache.core.DBNAME)  # what sqlite puts beside it has the same rights
        return diskcache.Cache(str(self.folder), disk=_BytesDisk, size_limit=self._size_limit, timeout=10)


@contextlib.contextmanager
def _surviving() -> Iterator[None]:
    with contextlib.suppress(OSError, sqlite3.Error, diskcache.Timeout):
        yield


def _seal(tensors: dict[str, Tensor]) -> bytes:
    """Safetensors behind their sha256."""
    import safetensors.torch

    blob: bytes = safetensors.torch.save(tensors)
    return hashlib.sha256(blob).digest() + blob


def _unseal(sealed: bytes) -> dict[str, Tensor] | None:
    import safetensors.torch

    digest, blob = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
    if hashlib.sha256(blob).digest() != digest:
        return None
    found: dict[str, Tensor] = safetensors.torch.load(blob)
    return found


def content_digest(tensor: Tensor) -> str:
    """sha256 of a tensor's shape, type and bytes."""
    digest = hashlib.sha256(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)
    for part in torch.split(flat, _HASHED_BYTES):
        digest.update(part.cpu().numpy().data)
    return digest.hexdigest()


def cache_key(*parts: object) -> str:
    """One key of several things that each have a repr of their own."""
    return hashlib.sha256(repr((VERSION, *parts)).encode()).hexdigest()
