"""How numbers that the engine keeps in its own units are shown to people, everywhere alike."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

LOG10_LOSS = "log10 loss"
"""What a training loss is called on screen, in tables and in messages."""

_Log = TypeVar("_Log", float, NDArray[np.float64])


def log10_loss(log_loss: _Log) -> _Log:
    """The logarithm to base 10 of a mean loss whose natural logarithm runs keep: such losses underflow as numbers.

    >>> round(log10_loss(-1000.0), 1)
    -434.3
    """
    return log_loss / math.log(10)
