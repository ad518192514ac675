"""Tensors out of a file that anybody may have written.

Everything a file claims is compared with the bytes it has before memory is taken for it, and nothing in
it is ever run. Reading takes at most about three times the file's size, plus some 200 MiB for a
description written to be as large as the limits allow.
"""

from __future__ import annotations

import json
import math
import stat
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from recon_core.errors import InputError
from recon_core.models.foreign_pickle import (
    ITEM_BYTES,
    Outline,
    RefusedPickleError,
    StorageOutline,
    TensorOutline,
    outline,
)

HEADER_LIMIT = 2**20
"""Bytes of a safetensors header or of a pickle: some 5,000 tensors."""
MEMBER_LIMIT = 10_000
_DIRECTORY_LIMIT = 2 * HEADER_LIMIT
_DIMENSIONS = 8
_RESAVE = "save it again with torch.save(model.state_dict(), path) or as safetensors"

WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net", "weights", "params")
"""Entries under which training scripts keep the state dict, the likeliest first."""

_SAFETENSORS_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, whose floating-point numbers are finite."""

    tensors: dict[str, Tensor]
    ordered: bool
    """Whether the tensors stand in the order in which the model was defined; safetensors sorts them by name."""
    notes: tuple[str, ...]


def shown(name: object) -> str:
    """A name from the file, fit for a sentence."""
    text = str(name) if isinstance(name, str | int) else type(name).__name__
    return repr(text if len(text) <= 80 else text[:77] + "...")


def read_state_dict(path: Path, *, max_bytes: int, max_parameters: int) -> StateDict:
    """The state dict of a `.safetensors` or `torch.save` file, told apart by content; `InputError` otherwise."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{str(path)!r} is a folder; give the checkpoint file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{str(path)!r} is not an ordinary file; give a .safetensors or .pth file")
        if status.st_size > max_bytes:
            raise InputError(
                f"{str(path)!r} has {status.st_size} bytes, at most {max_bytes} are read; "
                "save the weights alone, or raise the limit"
            )
        with open(path, "rb") as file:
            source = _Source(file, path, status.st_size, max_parameters)
            start = file.read(9)
            if not start:
                raise InputError(f"{str(path)!r} is empty; give a .safetensors or .pth file")
            if start.startswith(b"PK"):
                state = _read_torch(source)
            elif start[8:9] == b"{":
                state = _read_safetensors(source)
            else:
                raise _unknown_format(path, start)
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}; give the path of a .safetensors or .pth file") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{str(path)!r} cannot be read ({reason}); give a .safetensors or .pth file") from None
    for name, tensor in state.tensors.items():
        if tensor.is_floating_point() and not all(end.isfinite() for end in tensor.aminmax()):
            raise InputError(
                f"tensor {shown(name)} in {str(path)!r} holds NaN or infinite values; "
                "training diverged, use an earlier checkpoint"
            )
    return state


@dataclass(frozen=True)
class _Source:
    file: BinaryIO
    path: Path
    size: int
    max_parameters: int

    def refuse(self, what: str, fix: str = _RESAVE) -> InputError:
        return InputError(f"{str(self.path)!r} {what}; {fix}")

    def check_view(self, tensor: TensorOutline, name: str) -> None:
        """A tensor has to lie within its storage and to have numbers of its own."""
        if len(tensor.shape) > _DIMENSIONS or 0 in tensor.shape:
            raise self.refuse(f"has {name} of shape {_shape(tensor.shape)}, which is no weight")
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
        held = tensor.storage.numbers
        if math.prod(tensor.shape) > held or tensor.offset + last >= held:
            raise self.refuse(
                f"has {name} that claims shape {_shape(tensor.shape)} on {held} stored numbers",
                "make the tensors contiguous and save them again",
            )

    def check_tensors(self, tensors: Mapping[str, TensorOutline]) -> None:
        """Tensors that the file has the bytes for, and not too many parameters."""
        count = total = 0
        for name, tensor in tensors.items():
            self.check_view(tensor, f"tensor {shown(name)}")
            count += math.prod(tensor.shape)
            total += math.prod(tensor.shape) * ITEM_BYTES[tensor.storage.dtype]
        if total > self.size:
            raise self.refuse(
                f"has tensors that share memory: they claim {total} bytes of a file of {self.size}",
                "clone the tensors and save them again",
            )
        if count > self.max_parameters:
            raise self.refuse(f"has {count} parameters, at most {self.max_parameters} are read", "use a smaller model")


def _unknown_format(path: Path, start: bytes) -> InputError:
    if start.startswith(b"\x80"):
        return InputError(
            f"{str(path)!r} is a bare pickle or from torch before 1.6, and such files are not opened; "
            "load it where you trust it and save it again with torch.save(model.state_dict(), path)"
        )
    return InputError(f"{str(path)!r} is neither a .safetensors nor a torch.save file; give one of these")


def _shape(shape: tuple[int, ...]) -> str:
    """A shape for a sentence; hostile ones can be long."""
    return "x".join(str(size) if size < 10**12 else "huge" for size in shape[:_DIMENSIONS]) or "()"


# ---- torch.save -----------------------------------------------------------------------------------------------------


def _read_torch(source: _Source) -> StateDict:
    _check_directory(source)
    try:
        with zipfile.ZipFile(source.file) as archive:
            members = _members(archive, source)
            if "data.pkl" not in members or "version" not in members:
                raise source.refuse("is a zip file but not one of torch.save")
            if "constants.pkl" in members or any(name.startswith("code/") for name in members):
                raise source.refuse("is a TorchScript program, and programs are not opened")
            if members["data.pkl"].file_size > HEADER_LIMIT:
                raise source.refuse(
                    f"describes its contents in {members['data.pkl'].file_size} bytes, at most {HEADER_LIMIT} are read",
                    "save the state dict alone",
                )
            pickle = archive.read(members["data.pkl"])
            described = _outline(pickle, source)
            state = _find_state(described.root, source)
            source.check_tensors(state.tensors)
            for tensor in described.tensors:
                source.check_view(tensor, "a tensor beside the weights")
            for storage in described.storages:
                _check_storage(storage, members, source)
            if "byteorder" in members and archive.read(members["byteorder"]) not in (b"little", b""):
                raise source.refuse("was written on a machine of another byte order")
            kept: dict[StorageOutline, Tensor] = {}
            for held in {tensor.storage for tensor in state.tensors.values()}:
                numbers = bytearray(archive.read(members[f"data/{held.key}"]))
                kept[held] = torch.frombuffer(numbers, dtype=getattr(torch, held.dtype))
            # Copies of their own; torch reads nothing of the file.
            tensors = {
                name: kept[tensor.storage].as_strided(tensor.shape, tensor.stride, tensor.offset).clone()
                for name, tensor in state.tensors.items()
            }
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, struct.error, UnicodeError) as error:
        raise source.refuse(f"is damaged or cut short ({_reason(error)})", "copy or download it again") from None
    return StateDict(tensors, ordered=True, notes=state.notes)


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:120].rstrip(".") if lines else type(error).__name__


def _check_directory(source: _Source) -> None:
    """Bound the zip's directory before it is read: torch.save ends a file with it and writes no comment."""
    source.file.seek(max(0, source.size - 98))
    end = source.file.read()
    record, locator, record64 = end[-22:], end[-42:-22], end[-98:-42]
    if record[:4] != b"PK\x05\x06" or record[20:] != b"\0\0":
        raise source.refuse("is cut short or not written by torch.save: its zip directory is not at the end")
    counts, sizes = [struct.unpack_from("<H", record, 10)[0]], [struct.unpack_from("<L", record, 12)[0]]
    if locator[:4] == b"PK\x06\x07":
        at = struct.unpack_from("<Q", locator, 8)[0]
        if len(record64) < 56 or record64[:4] != b"PK\x06\x06" or at != source.size - 98:
            raise source.refuse("has a zip directory that contradicts itself")
        # Saturated fields of the short record refer to the long one.
        counts = [n for n in counts if n != 0xFFFF] + [struct.unpack_from("<Q", record64, 32)[0]]
        sizes = [n for n in sizes if n != 0xFFFFFFFF] + [struct.unpack_from("<Q", record64, 40)[0]]
    if max(counts) > MEMBER_LIMIT or max(sizes) > _DIRECTORY_LIMIT:
        raise source.refuse(
            f"lists {max(counts)} members in {max(sizes)} bytes, at most {MEMBER_LIMIT} in {_DIRECTORY_LIMIT} are read",
            "save the state dict alone",
        )


def _members(archive: zipfile.ZipFile, source: _Source) -> dict[str, zipfile.ZipInfo]:
    """The archive's members below its one folder; all stored as they are, as torch.save does, so none can swell."""
    members: dict[str, zipfile.ZipInfo] = {}
    folders = set()
    total = 0
    for info in archive.infolist():
        folder, _, name = info.filename.partition("/")
        if not name or "\\" in info.filename or set(info.filename.split("/")) & {"", ".", ".."}:
            raise source.refuse(f"has the member {shown(info.filename)}, which torch.save would not write")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            raise source.refuse(
                f"has a compressed or encrypted member {shown(info.filename)} of {info.file_size} bytes"
            )
        if name in members:
            raise source.refuse(f"has the member {shown(info.filename)} twice")
        members[name] = info
        folders.add(folder)
        total += info.file_size
    if len(folders) != 1:
        raise source.refuse(f"is a zip file with {len(folders)} folders, not one of torch.save")
    if total > source.size:
        raise source.refuse(f"claims to hold {total} bytes in a file of {source.size}")
    return members


def _outline(pickle: bytes, source: _Source) -> Outline:
    try:
        return outline(pickle)
    except RefusedPickleError as error:
        raise source.refuse(f"holds more than tensors and was not opened: {error}") from None
    except Exception as error:  # an untrusted pickle may be broken in any way
        raise source.refuse(f"has a damaged description ({_reason(error)})", "copy or download it again") from None


@dataclass(frozen=True)
class _Found:
    """A state dict within the loaded object, and the keys that lead there."""

    tensors: dict[str, TensorOutline]
    route: tuple[str, ...]
    notes: tuple[str, ...]


def _find_state(root: Any, source: _Source) -> _Found:
    """The dictionary that holds tensors: the object itself or, up to three levels down, an entry of it."""
    route: list[str] = []
    node = root
    while True:
        if not isinstance(node, dict) or not node or len(route) > 3:
            kind = type(node).__name__.removesuffix("Outline").lower()
            found = f"a {kind}" if node else "nothing"
            raise source.refuse(f"holds {found} where a flat dictionary of tensors was expected")
        tensors = {name: value for name, value in node.items() if isinstance(value, TensorOutline)}
        if tensors:
            break
        groups = [key for key, value in node.items() if isinstance(key, str) and isinstance(value, dict) and value]
        known = [key for key in WRAPPERS if key in groups]
        chosen = known[:1] or groups
        if len(chosen) != 1:
            there = ", ".join(shown(key) for key in list(node)[:8])
            raise source.refuse(f"holds no state dict that can be told apart among {there}")
        route.append(chosen[0])
        node = node[chosen[0]]
    for name in tensors:
        if not isinstance(name, str):
            raise source.refuse(f"has a tensor under {shown(name)}, which is no name")
    nested = next((key for key, value in node.items() if isinstance(value, dict | list | tuple)), None)
    if nested is not None:
        raise source.refuse(f"mixes tensors with the group {shown(nested)}", "save a flat state dict")
    notes = []
    if route:
        notes.append(f"The weights are those under {shown('.'.join(route))}; other entries were left alone.")
    if left := [shown(key) for key in node if key not in tensors]:
        notes.append(f"Entries that are no tensors were left alone: {', '.join(left[:8])}.")
    return _Found(tensors, tuple(route), tuple(notes))


def _check_storage(storage: StorageOutline, members: Mapping[str, zipfile.ZipInfo], source: _Source) -> None:
    name = f"data/{storage.key}"
    held = members[name].file_size if name in members else 0
    if held != storage.numbers * ITEM_BYTES[storage.dtype]:
        raise source.refuse(
            f"has {held} bytes in {shown(name)} for {storage.numbers} numbers of {storage.dtype}",
            "copy or download it again",
        )


# ---- safetensors ----------------------------------------------------------------------------------------------------


def _read_safetensors(source: _Source) -> StateDict:
    source.file.seek(0)
    length = int.from_bytes(source.file.read(8), "little")
    if length > HEADER_LIMIT:
        raise source.refuse(
            f"claims a header of {length} bytes, at most {HEADER_LIMIT} are read", "give a .safetensors or .pth file"
        )
    text = source.file.read(length)
    if len(text) < length:
        raise source.refuse("is cut short inside its header", "copy or download it again")
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", {})
        tensors = {name: _entry(entry) for name, entry in header.items()}
        spans = sorted(entry["data_offsets"] for entry in header.values())
    except Exception as error:  # an untrusted header may be broken in any way
        raise source.refuse(f"has a damaged header ({_reason(error)})", "copy or download it again") from None
    if not tensors:
        raise source.refuse("holds no tensors")
    position = 0
    for begin, end in spans:
        if begin != position:
            raise source.refuse(
                f"has tensors that overlap or leave a gap at byte {position}", "copy or download it again"
            )
        position = end
    if 8 + length + position != source.size:
        raise source.refuse(
            f"has {source.size - 8 - length} bytes of data where its header claims {position}",
            "copy or download it again",
        )
    source.check_tensors(tensors)
    try:
        # Read, not mapped: a file cut short while it is used must not crash the process.
        loaded = safetensors.torch.load_file(source.path, backend="pread")
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise source.refuse(f"cannot be loaded ({_reason(error)})", "copy or download it again") from None
    notes = (f"The file describes itself as: {shown(json.dumps(metadata))}.",) if metadata else ()
    return StateDict({name: loaded[name] for name in tensors}, ordered=False, notes=notes)


def _entry(entry: Any) -> TensorOutline:
    """One tensor of a header, whose bytes must be what its shape and type take."""
    if set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("a tensor is not described by dtype, shape and data_offsets")
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in _SAFETENSORS_DTYPES:
        raise ValueError(f"a tensor has the type {str(dtype)[:20]!r}")
    if len(shape) > _DIMENSIONS or not all(type(size) is int and 0 <= size < 2**63 for size in (*shape, begin, end)):
        raise ValueError("a size is not a whole number, or a shape has too many of them")
    count = math.prod(shape)
    name = _SAFETENSORS_DTYPES[dtype]
    if end - begin != count * ITEM_BYTES[name]:
        raise ValueError(f"a tensor of shape {_shape(shape)} has {end - begin} bytes")
    stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorOutline(StorageOutline(name, "", count), 0, shape, stride)
