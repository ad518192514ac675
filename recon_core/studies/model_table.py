"""A study's table of models as people read it, on the page and in the report alike."""

from __future__ import annotations

import pandas as pd

from recon_core.units import LOG10_LOSS, log10_loss

_COLUMNS = {
    "panel": "for",
    "value": "value",
    "seed": "seed",
    "state": "state",
    "good": "good",
    "of": "of",
    "chance": "chance level",
    "control_mean_image": "control: mean image",
    "control_untrained": "control: untrained network",
    "non_members": "control: held-out images",
    "threshold": "good above",
    "ssim_kind": "SSIM",
    "other_good": "good, other SSIM",
    "other_chance": "chance level, other SSIM",
    "other_ssim_kind": "other SSIM",
    "merge_factor": "B",
    "on_margin": "on the margin",
    "train_error": "train error",
    "test_error": "test error",
    "certain": "certain candidates",
    "certain_real": "of these real",
    "loss_tpr": "membership by loss at 1%",
    "tpr": "membership by reconstruction at 1%",
    "epsilon": "epsilon",
    "noise_multiplier": "noise multiplier",
    "train_seconds": "training (s)",
    "log_loss": LOG10_LOSS,
    "kkt_layer1": "KKT residual of layer 1",
    "residual": "residual of the attack",
    "train_run": "training",
    "attack_run": "attack",
    "match_run": "match",
    "message": "message",
}


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """What people ask first, under names of the field; columns without any value are left out."""
    kept = [name for name in _COLUMNS if name in frame and (frame[name].notna() & (frame[name] != "")).any()]
    shown = frame[kept].convert_dtypes()
    if "log_loss" in shown:
        shown["log_loss"] = log10_loss(frame["log_loss"].to_numpy(float))
    return shown.rename(columns=_COLUMNS)
