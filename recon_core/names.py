"""Settings whose values are names that modules register: an open list, where an enum would be a closed one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


def listed(names: Iterable[str]) -> str:
    """'a', 'b' or 'c'."""
    *others, last = [repr(str(name)) for name in names]
    return f"{', '.join(others)} or {last}" if others else last


class RegisteredName(str):
    """A name in a registry; which ones there are is looked up when a setting is checked. In files it is plain text."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All that are registered, in the order in which they are offered."""
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            cls._checked,
            core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def _checked(cls, value: Any) -> Self:
        if not isinstance(value, str) or value not in cls.names():
            raise PydanticCustomError("unknown_name", "Input should be {names}", {"names": listed(cls.names())})
        return cls(value)
