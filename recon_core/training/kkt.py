"""How close a network is to its KKT point: Eq. 2 of Haim et al. 2022, measured at the true samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from recon_core.training.losses import Loss
from recon_core.training.trainable import Trainable

# Directions of the Gram matrix below this share of its largest are rounding.
_RANK_TOLERANCE = 1e-10


class KktResidual(NamedTuple):
    """|theta - sum_i lam_i grad q_i| / |theta|, each with its own best multipliers: 0 explained, 1 not at all.

    `per_layer` fits every layer alone, `overall` all layers with one set of `multipliers` (n,).
    1 - residual^2 is the share of the squared weights that the samples explain.
    """

    per_layer: list[float]
    overall: float
    multipliers: NDArray[np.float64]


def kkt_residual(trainable: Trainable, loss: Loss) -> KktResidual:
    """Best multipliers and what they leave over.

    Non-negative for classifiers, whose margin constraints are inequalities; free for regression, where
    lam_i = -loss'_i / (n decay) has either sign (Buzaglo et al. 2023, Section 5). Needs only the n x n Gram
    matrix: |theta - G^T lam|^2 = |theta|^2 - 2 lam . (G theta) + lam . K lam.
    """
    run = trainable.forward()
    directions = loss.margin_directions(run.outputs)[:, None, :]
    gradients = trainable.gradients(run, directions)
    grams = [gram.double().cpu().numpy() for gram in gradients.grams]
    inner = [product.double().cpu().numpy() for product in trainable.inner_products(run, gradients)]
    norms = [float(norm) for norm in torch.stack(trainable.squared_norms()).double()]
    norms[0] += float(trainable.outside_squared_norm())
    signed = loss.function.classifies
    fits = [fit_multipliers(gram, b, norm, signed) for gram, b, norm in zip(grams, inner, norms, strict=True)]
    whole = fit_multipliers(np.sum(grams, axis=0), np.sum(inner, axis=0), sum(norms), signed)
    return KktResidual([fit.residual for fit in fits], whole.residual, whole.multipliers)


class Fit(NamedTuple):
    """Multipliers (n,) and the relative residual they leave."""

    residual: float
    multipliers: NDArray[np.float64]


def fit_multipliers(gram: NDArray[np.float64], inner: NDArray[np.float64], norm: float, nonnegative: bool) -> Fit:
    """The best multipliers, from products of gradients (n, n), gradients with theta (n,), and |theta|^2."""
    if norm == 0 or not np.isfinite(gram).all():
        return Fit(float("nan"), np.zeros_like(inner))
    values, vectors = np.linalg.eigh(gram)
    kept = values > values[-1] * _RANK_TOLERANCE
    root = np.sqrt(values[kept])
    factor = (vectors[:, kept] * root).T
    target = (vectors[:, kept].T @ inner) / root
    lam = nnls(factor, target)[0] if nonnegative else np.linalg.lstsq(factor, target, rcond=None)[0]
    left = norm - 2 * lam @ inner + lam @ gram @ lam
    return Fit(float(np.sqrt(max(left, 0.0) / norm)), lam)
