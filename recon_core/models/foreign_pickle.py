"""What a `torch.save` pickle would build, found by interpreting its opcodes: nothing is imported, called or allocated.

`torch.load(weights_only=True)` runs no foreign code but still calls what it trusts, and it trusts
`bytearray(10**12)` and `torch.Tensor(10**6, 10**6)`. So the pickle is read here first, opcode by opcode,
allowing only what a dictionary of tensors needs; sizes can then be checked before memory is taken.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_STORAGES = {
    "torch DoubleStorage": "float64",
    "torch FloatStorage": "float32",
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
}


class RefusedPickleError(ValueError):
    """The pickle asks for more than tensors in dictionaries; the message says for what."""


@dataclass(frozen=True)
class StorageOutline:
    """As many numbers kept in the archive's member data/`key`."""

    dtype: str
    key: str
    numbers: int


@dataclass(frozen=True)
class TensorOutline:
    """A view of a storage; `offset` and `stride` count numbers, not bytes."""

    storage: StorageOutline
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    """A name the pickle refers to, as "module name"."""

    name: str


@dataclass(frozen=True)
class Outline:
    """The pickled object, `TensorOutline` standing for tensors and plain dictionaries for ordered ones."""

    root: Any
    tensors: tuple[TensorOutline, ...]
    """All that loading would build, whether or not they are part of the object."""
    storages: tuple[StorageOutline, ...]


def outline(pickle: bytes) -> Outline:
    """What `pickle` describes.

    Raises `RefusedPickleError` where anything else is asked for, any exception where the pickle is damaged.
    """
    reader = _Reader()
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name == "STOP":
            return Outline(reader.stack.pop(), tuple(reader.tensors), tuple(reader.storages))
        step = _STEPS.get(opcode.name)
        if step is None:
            raise RefusedPickleError(f"it uses the pickle instruction {opcode.name}, which no state dict needs")
        step(reader, argument)
    raise EOFError("the pickle does not end")


class _Reader:
    """The pickle machine's stack, stack of stacks (one a mark) and memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.tensors: list[TensorOutline] = []
        self.storages: list[StorageOutline] = []

    def ignore(self, _: object) -> None:
        """Protocol numbers, and where frames begin."""

    def push(self, value: object) -> None:
        self.stack.append(value)

    def mark(self, _: object) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer.pop()
        return items

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def memoize(self, _: object) -> None:
        """Protocol 4 numbers its memo by itself."""
        self.memo[len(self.memo)] = self.stack[-1]

    def recall(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def tuple_of_marked(self, _: object) -> None:
        items = self.since_mark()
        self.stack.append(tuple(items))

    def append(self, _: object) -> None:
        value = self.stack.pop()
        _expect(self.stack[-1], list).append(value)

    def append_marked(self, _: object) -> None:
        items = self.since_mark()
        _expect(self.stack[-1], list).extend(items)

    def set_item(self, _: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _expect(self.stack[-1], dict)[_key(key)] = value

    def set_marked(self, _: object) -> None:
        items = self.since_mark()
        keys = [_key(key) for key in items[::2]]
        _expect(self.stack[-1], dict).update(zip(keys, items[1::2], strict=True))

    def name(self, argument: str) -> None:
        if argument not in _STORAGES and argument not in _CALLS:
            raise RefusedPickleError(f"loading it would call {argument[:80].replace(' ', '.')!r}")
        self.stack.append(_Global(argument))

    def name_from_stack(self, _: object) -> None:
        name, module = _expect(self.stack.pop(), str), _expect(self.stack.pop(), str)
        self.name(f"{module} {name}")

    def call(self, _: object) -> None:
        arguments = _expect(self.stack.pop(), tuple)
        function = _expect(self.stack.pop(), _Global).name
        if function not in _CALLS:
            raise RefusedPickleError(f"loading it would call {function.replace(' ', '.')!r}")
        made = _CALLS[function](*arguments)
        if isinstance(made, TensorOutline):
            self.tensors.append(made)
        self.stack.append(made)

    def build(self, _: object) -> None:
        """An ordered dictionary's attributes (torch keeps version numbers there), which nobody needs."""
        _expect(self.stack.pop(), dict)
        _expect(self.stack[-1], dict)

    def storage(self, _: object) -> None:
        kind, storage, key, _place, count = _expect(self.stack.pop(), tuple)
        dtype = _STORAGES.get(_expect(storage, _Global).name)
        if kind != "storage" or dtype is None:
            raise RefusedPickleError("it keeps something other than tensors beside the pickle")
        self.storages.append(StorageOutline(dtype, _expect(key, str), _size(count)))
        self.stack.append(self.storages[-1])


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _key(value: Any) -> str | int:
    """Text or a number. Hashing a tuple nested a million deep would crash the interpreter."""
    if type(value) is not str and type(value) is not int:
        raise TypeError(f"a key is of type {type(value).__name__}")
    return value


def _size(value: Any) -> int:
    size: int = _expect(value, int)
    if size < 0:
        raise ValueError(f"{size} is no size")
    return size


def _sizes(values: Any) -> tuple[int, ...]:
    return tuple(_size(value) for value in _expect(values, tuple))


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, requires_grad: Any, hooks: Any) -> TensorOutline:
    _bare(requires_grad, hooks)
    found = TensorOutline(_expect(storage, StorageOutline), _size(offset), _sizes(shape), _sizes(stride))
    if len(found.shape) != len(found.stride):
        raise ValueError("a tensor's shape and stride differ in length")
    return found


def _parameter(data: Any, requires_grad: Any, hooks: Any) -> TensorOutline:
    _bare(requires_grad, hooks)
    tensor: TensorOutline = _expect(data, TensorOutline)
    return tensor


def _bare(requires_grad: Any, hooks: Any) -> None:
    _expect(requires_grad, bool)
    if _expect(hooks, dict):
        raise RefusedPickleError("it attaches hooks to a tensor")


def _ordered() -> dict[Any, Any]:
    return {}


_CALLS: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _ordered,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
}


def _push_tuple(length: int) -> Callable[[_Reader, Any], None]:
    def step(reader: _Reader, _: object) -> None:
        items = [reader.stack.pop() for _ in range(length)]
        reader.push(tuple(reversed(items)))

    return step


_STEPS: dict[str, Callable[[_Reader, Any], None]] = {
    "PROTO": _Reader.ignore,
    "FRAME": _Reader.ignore,
    "MEMOIZE": _Reader.memoize,
    "SHORT_BINUNICODE": _Reader.push,
    "STACK_GLOBAL": _Reader.name_from_stack,
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "BININT": _Reader.push,
    "BININT1": _Reader.push,
    "BININT2": _Reader.push,
    "LONG1": _Reader.push,
    "BINFLOAT": _Reader.push,
    "BINUNICODE": _Reader.push,
    "BINPUT": _Reader.remember,
    "LONG_BINPUT": _Reader.remember,
    "BINGET": _Reader.recall,
    "LONG_BINGET": _Reader.recall,
    "MARK": _Reader.mark,
    "TUPLE": _Reader.tuple_of_marked,
    "TUPLE1": _push_tuple(1),
    "TUPLE2": _push_tuple(2),
    "TUPLE3": _push_tuple(3),
    "APPEND": _Reader.append,
    "APPENDS": _Reader.append_marked,
    "SETITEM": _Reader.set_item,
    "SETITEMS": _Reader.set_marked,
    "GLOBAL": _Reader.name,
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
    "BINPERSID": _Reader.storage,
}
