"""Tensors on disk: safetensors files that carry a checksum of everything else in them.

Torch is imported only where tensors are made, so that listing and checking a store stays instant.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from recon_core.store.files import DamagedError, decode_json, unreadable, write_atomic
from recon_core.store.private import open_to_read

if TYPE_CHECKING:
    import torch

_HEADER_LIMIT = 8 * 2**20
_CHUNK = 2**20
_CHECKSUM = "blake2b"
_METADATA = "__metadata__"
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}


class _Opening(NamedTuple):
    """The start of a safetensors file: its header and where the data begin."""

    header: dict[str, Any]
    data_start: int


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Replace `path` by `tensors` (any device, any layout in memory) and `metadata`."""
    import safetensors.torch

    blob = safetensors.torch.save(_apart(tensors))
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    data = memoryview(blob)[8 + size :]
    header[_METADATA] = {**metadata, _CHECKSUM: _checksum({**header, _METADATA: dict(metadata)}, [data])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # safetensors keeps the data aligned to 8 bytes
    if len(text) > _HEADER_LIMIT:
        raise ValueError(f"{path.name} describes its tensors in {len(text)} bytes, more than {_HEADER_LIMIT}")
    write_atomic(path, [len(text).to_bytes(8, "little"), text, data])


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same values on the CPU, contiguous, no two sharing memory (safetensors refuses views of one another)."""
    apart: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        if plain.untyped_storage().data_ptr() in seen:
            plain = plain.clone()
        seen.add(plain.untyped_storage().data_ptr())
        apart[name] = plain
    return apart


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file whose header and length agree; `DamagedError` otherwise."""
    check_tensors(path, checksum=False)
    import safetensors
    import safetensors.torch

    try:
        # Read, not mapped: the space of a deleted file comes back, and a file cut short cannot crash us later.
        return dict(safetensors.torch.load_file(path, backend="pread"))
    except safetensors.SafetensorError as error:
        raise DamagedError(f"{path.name} cannot be read ({error})") from None


def check_tensors(path: Path, *, checksum: bool = True) -> dict[str, str]:
    """The file's metadata, if header and length (and the checksum, where there is one) agree; `DamagedError` if not.

    Neither torch nor memory for the data is needed.
    """
    try:
        with open_to_read(path) as file:
            opening = _open(file, path.name)
            metadata = opening.header.get(_METADATA, {})
            _check_layout(opening, os.fstat(file.fileno()).st_size, path.name)
            stated = metadata.get(_CHECKSUM)
            if checksum and stated is not None:
                bare = {key: value for key, value in metadata.items() if key != _CHECKSUM}
                actual = _checksum({**opening.header, _METADATA: bare}, iter(lambda: file.read(_CHUNK), b""))
                if actual != stated:
                    raise DamagedError(f"{path.name} does not match its checksum")
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamagedError(unreadable(path, error)) from None
    return dict(metadata)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a file, from its header alone."""
    check_tensors(path, checksum=False)
    with open_to_read(path) as file:
        header = _open(file, path.name).header
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != _METADATA}


def _open(file: BinaryIO, name: str) -> _Opening:
    prefix = file.read(8)
    size = int.from_bytes(prefix, "little")
    if len(prefix) < 8:
        raise DamagedError(f"{name} is truncated: it has {len(prefix)} bytes")
    if size > _HEADER_LIMIT:
        raise DamagedError(f"{name} claims a header of {size} bytes, more than {_HEADER_LIMIT}")
    text = file.read(size)
    if len(text) < size:
        raise DamagedError(f"{name} is truncated inside its header")
    header = decode_json(text, name)
    if not isinstance(header, dict):
        raise DamagedError(f"{name} has no header object")
    metadata = header.get(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DamagedError(f"{name} has metadata that is not text")
    return _Opening(header, 8 + size)


def _check_layout(opening: _Opening, file_size: int, name: str) -> None:
    """Every byte of data belongs to exactly one tensor, and none is missing."""
    spans = []
    for key, entry in opening.header.items():
        if key == _METADATA:
            continue
        shown = f"{name}: tensor {key[:80]!r}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise DamagedError(f"{shown} is not described by dtype, shape and data_offsets")
        item_bytes = _ITEM_BYTES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if item_bytes is None:
            raise DamagedError(f"{shown} has the unknown dtype {str(entry['dtype'])[:20]!r}")
        if not _are_sizes(entry["shape"]) or len(entry["shape"]) > 16:
            raise DamagedError(f"{shown} has an impossible shape")
        if not _are_sizes(entry["data_offsets"]) or len(entry["data_offsets"]) != 2:
            raise DamagedError(f"{shown} has impossible offsets")
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(entry["shape"]) * item_bytes:
            raise DamagedError(f"{shown} claims a shape that its {end - begin} bytes do not fill")
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise DamagedError(f"{name} has tensors that overlap or leave a hole at byte {position}")
        position = end
    held = file_size - opening.data_start
    if held < position:
        raise DamagedError(f"{name} is truncated: it has {held} of {position} bytes of data")
    if held > position:
        raise DamagedError(f"{name} has {held - position} bytes behind its data")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _checksum(header: Mapping[str, Any], data: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16)
    for chunk in data:
        digest.update(chunk)
    return digest.hexdigest()
