"""Structural similarity of image pairs, batched (Wang et al. 2004)."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from recon_core.errors import InputError
from recon_core.matching.pairs import check_pairs
from recon_core.matching.threads import one_thread

C1, C2 = 0.01**2, 0.03**2  # (K1 L)^2 and (K2 L)^2 of the paper, for images in [0, 1]
SIGMA = 1.5
# Values filtered at a time: on a CPU a chunk's maps should stay in its cache, elsewhere fewer and larger launches win.
CPU_CHUNK, DEVICE_CHUNK = 1 << 18, 1 << 25


class SsimKind(StrEnum):
    """Which window. The two differ by 0.01 and more on noise, so every figure says which it uses."""

    WANG = "wang"
    """11x11 gaussian window where it fits whole, as in the paper and in scikit-image."""
    AUTHORS = "authors"
    """3x3 gaussian window with mirrored borders: what both papers' code calls through kornia."""

    @property
    def other(self) -> SsimKind:
        """The other window, whose count stands beside this one's."""
        return SsimKind.AUTHORS if self is SsimKind.WANG else SsimKind.WANG

    @property
    def window(self) -> str:
        """Its size, in words for a sentence."""
        return "11x11 window" if self is SsimKind.WANG else "papers' 3x3 window"

    @property
    def radius(self) -> int:
        return 5 if self is SsimKind.WANG else 1

    @property
    def smallest_side(self) -> int:
        return 11 if self is SsimKind.WANG else 2


def ssim(x: Tensor, y: Tensor, kind: SsimKind = SsimKind.WANG) -> Tensor:
    """SSIM of each pair, the mean of its map; (P, C, H, W) twice, in [0, 1] -> (P,) in [-1, 1].

    `wang` equals scikit-image with gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1;
    `authors` equals kornia with window_size=3, its 1e-12 in the denominator included.
    """
    _check(x, y, kind)
    rows, columns = _window_matrix(x.shape[2], kind, x), _window_matrix(x.shape[3], kind, x)
    chunk = max(1, (CPU_CHUNK if x.device.type == "cpu" else DEVICE_CHUNK) // max(1, x[:1].numel()))
    scores = x.new_empty(len(x))
    moments = x.new_empty(4, min(chunk, len(x)), *x.shape[1:])
    with one_thread():
        for start in range(0, len(x), chunk):
            part = slice(start, min(start + chunk, len(x)))
            similarity = _map(x[part], y[part], rows, columns, kind, moments[:, : part.stop - start])
            scores[part] = similarity.flatten(1).mean(dim=1)
    return scores.clamp_(-1.0, 1.0)  # rounding puts a copy of a flat image up to 6e-6 beyond


def fits(images: Tensor, kind: SsimKind) -> bool:
    """Whether images (N, C, H, W) are as large as this window asks for."""
    return min(images.shape[2:]) >= kind.smallest_side


def ssim_map(x: Tensor, y: Tensor, kind: SsimKind = SsimKind.WANG) -> Tensor:
    """Where a pair agrees: (P, C, H, W) twice -> (P, C, H', W'); `wang` loses 5 pixels at every border."""
    _check(x, y, kind)
    rows, columns = _window_matrix(x.shape[2], kind, x), _window_matrix(x.shape[3], kind, x)
    return _map(x, y, rows, columns, kind, x.new_empty(4, *x.shape))


def _check(x: Tensor, y: Tensor, kind: SsimKind) -> None:
    check_pairs(x, y)
    if not fits(x, kind):
        side = kind.smallest_side
        raise InputError(
            f"SSIM {kind} needs images of at least {side}x{side} pixels, got {x.shape[2]}x{x.shape[3]}"
            + ("; use SSIM authors for smaller ones" if kind is SsimKind.WANG else "")
        )


def _window_matrix(side: int, kind: SsimKind, like: Tensor) -> Tensor:
    """The gaussian window sliding along one axis, as a band matrix (side', side)."""
    radius = kind.radius
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-(offsets**2) / (2 * SIGMA**2))
    weights /= weights.sum()
    centres = torch.arange(radius, side - radius) if kind is SsimKind.WANG else torch.arange(side)
    taps = centres[:, None] + torch.arange(-radius, radius + 1)
    taps = (side - 1) - ((side - 1) - taps.abs()).abs()  # mirror about the outermost pixel, without repeating it
    matrix = torch.zeros(len(centres), side, dtype=torch.float64)
    matrix.scatter_add_(1, taps, weights.expand(taps.shape))
    return matrix.to(like.dtype).to(like.device)


def _map(x: Tensor, y: Tensor, rows: Tensor, columns: Tensor, kind: SsimKind, moments: Tensor) -> Tensor:
    """Both factors of SSIM from four filtered maps: the means, E[x^2 + y^2] and E[xy].

    Variances do not see a shift, so pixels are filtered about 0.5: E[x^2] - mu^2 would lose 1e-5 of the score on
    bright flat images in float32. `moments` (4, P, C, H, W) is room to work in and maps are overwritten once used up:
    fresh memory costs more than the arithmetic.
    """
    torch.sub(x, 0.5, out=moments[0])
    torch.sub(y, 0.5, out=moments[1])
    torch.mul(moments[0], moments[0], out=moments[2]).addcmul_(moments[1], moments[1])
    torch.mul(moments[0], moments[1], out=moments[3])
    mu_x, mu_y, variances, covariance = _filter(moments, rows, columns)
    variances.addcmul_(mu_x, mu_x, value=-1).addcmul_(mu_y, mu_y, value=-1)
    covariance.addcmul_(mu_x, mu_y, value=-1)
    mu_x.add_(0.5)
    mu_y.add_(0.5)
    numerator = (mu_x * mu_y).mul_(2).add_(C1).mul_(covariance.mul_(2).add_(C2))
    denominator = mu_x.square_().addcmul_(mu_y, mu_y).add_(C1).mul_(variances.add_(C2))
    if kind is SsimKind.AUTHORS:
        denominator.add_(1e-12)  # kornia's eps: 1e-5 of the score where both images are black
    similarity: Tensor = numerator.div_(denominator)
    return similarity


def _filter(maps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ map @ columns.T for every map (..., H, W).

    Plain matrix products: some 30 times the speed of the convolutions they stand for, on a CPU.
    """
    *batch, height, width = maps.shape
    along_width = (maps.reshape(-1, width) @ columns.T).view(-1, height, len(columns))
    return torch.matmul(rows, along_width).view(*batch, len(rows), len(columns))
