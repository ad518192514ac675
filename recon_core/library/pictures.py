"""Results as a notebook shows them: one inline picture, or a small table."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from recon_core.matching.scaling import stretch
from recon_core.plots.attack_mosaic import candidate_mosaic

SHOWN = 60
COLUMNS = 20
_WIDEST = 960


def inline_png(png: bytes, title: str) -> str:
    """A picture that needs no file beside it."""
    code = base64.b64encode(png).decode("ascii")
    return f'<div>{html.escape(title)}</div><img alt="{html.escape(title)}" src="data:image/png;base64,{code}">'


def mosaic_html(images: Tensor, title: str) -> str:
    """The first images (k, C, H, W) in [0, 1] as one picture."""
    shown = images[:SHOWN].detach().cpu().float().numpy().astype(np.float32)
    return inline_png(candidate_mosaic(shown, COLUMNS, _WIDEST), title)


def stretched(candidates: Tensor) -> Tensor:
    """Candidates (k, C, H, W), centred, each stretched to [0, 1]: the training mean is not known."""
    return stretch(torch.nan_to_num(candidates.float(), 0.0, 0.0, 0.0))


def table_html(rows: Mapping[str, object], title: str) -> str:
    """Two columns: what, and its value."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div>{html.escape(title)}</div><table>{cells}</table>"
