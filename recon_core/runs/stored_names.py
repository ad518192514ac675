"""Names that changed since 0.1.0: what an older version stored is read under the names of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CONTROLS = {"floor_mean_image": "control_mean_image", "floor_untrained": "control_untrained"}
"""In counts; 0.1.0 said floor for chance level."""
_SETTINGS = {"floor": "untrained_control"}
"""In studies."""


def with_current_names(count: Mapping[str, Any]) -> dict[str, Any]:
    """A stored count, or a row of numbers made from one, as this version names its values."""
    return {_CONTROLS.get(name, name): value for name, value in count.items()}


def with_current_settings(values: Any) -> Any:
    """The settings of a study under their names of today, for a validator: what is no mapping is left to be refused."""
    return (
        {_SETTINGS.get(name, name): value for name, value in values.items()} if isinstance(values, Mapping) else values
    )
