"""One pair as pictures of equal size: both images, their difference, and the map of SSIM."""

from __future__ import annotations

import numpy as np
import plotly.colors

from recon_core.analysis.arrays import Floats
from recon_core.analysis.pairs import Images
from recon_core.plots.mosaic import pixels

_NO_VALUE = 0.5  # grey, where the map is not defined


def pair_pictures(image: Images, reconstruction: Images, difference: Images, similarity: Floats) -> Images:
    """Three images (C, H, W) in [0, 1] and a map (H, W) of SSIM, in colour: -> (4, 3, H, W) in [0, 1]."""
    shown = [_in_colour(part) for part in (image, reconstruction, difference)]
    return np.stack([*shown, similarity_image(similarity)])


def similarity_image(similarity: Floats) -> Images:
    """A map of SSIM (H, W) in cividis: dark blue at 0 and below, yellow at 1, grey where it is NaN: -> (3, H, W)."""
    scale = [plotly.colors.hex_to_rgb(colour) for colour in plotly.colors.sequential.Cividis]
    stops = np.linspace(0.0, 1.0, len(scale))
    channels = np.stack([np.interp(similarity, stops, levels) / 255 for levels in np.transpose(scale)])
    coloured: Images = np.where(np.isnan(similarity), _NO_VALUE, channels).astype(np.float32)
    return coloured


def _in_colour(image: Images) -> Images:
    shown: Images = (pixels(image[None])[0].transpose(2, 0, 1) / 255).astype(np.float32)
    return shown
