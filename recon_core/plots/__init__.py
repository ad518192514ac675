"""From numbers to figures: every function takes a result of `analysis` and draws it.

Each figure by name, `plots.plot_roc`; its module is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_FIGURES = {
    "attack": ("plot_candidate_points", "plot_residuals"),
    "attack_mosaic": ("candidate_mosaic",),
    "counts": ("plot_count_by_factor", "plot_count_by_threshold", "plot_roc", "plot_sorted_ssim"),
    "decay": ("plot_decay_curve",),
    "files": ("write_figures",),
    "leakage": ("plot_leakage", "plot_leakage_panels", "plot_ssim_by_margin", "plot_ssim_by_output"),
    "model": ("plot_models", "plot_multipliers", "plot_singular_values"),
    "mosaic": ("image_mosaic", "pairs_mosaic", "save_mosaic"),
    "pairs": ("plot_pairs",),
    "points": ("plot_points",),
    "search": ("plot_importance", "plot_parallel", "plot_trials"),
    "studies": ("plot_curves",),
    "training": ("plot_errors", "plot_gradient_norm", "plot_loss", "plot_margin_histogram", "plot_margins"),
}
_MODULES = {name: module for module, names in _FIGURES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
