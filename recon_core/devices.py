"""Where tensors live and how precise they are."""

from __future__ import annotations

import os
import platform

import torch

from recon_core.errors import InputError

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def pick_device(wish: str = "auto") -> torch.device:
    """CUDA, then Apple's MPS, then the CPU; or what `wish` names, if this machine has it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wish == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if available[name]))
    if not available[wish]:
        here = ", ".join(name for name, there in available.items() if there)
        raise InputError(f"device {wish!r} is not on this machine; available: {here} (or leave device=auto)")
    return torch.device(wish)


def hardware() -> str:
    """What computes here, in words for a report: '2 CPU cores (x86_64)', and a GPU where there is one."""
    cores = os.cpu_count() or 1
    text = f"{cores} CPU core{'s' if cores > 1 else ''} ({platform.machine()})"
    return f"{text}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else text
