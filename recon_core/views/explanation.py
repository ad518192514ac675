"""The numbers behind the page that explains the idea: out of the recorded circle, and of a small training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from recon_core.views.circle_frames import MIDDLE, RADII, Floats, Integers, Points, ShippedCircle


@dataclass(frozen=True, eq=False)
class MarginCourse:
    """Margins of the recorded circle's training points while it was trained: steps (F,), margins (F, n)."""

    steps: Integers
    margins: Floats


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Of the candidates that the recorded attack was left with: how much each acts, how far from a training point."""

    values: Floats
    distances: Floats
    """(m,), to the nearest training point of its class."""


@dataclass(frozen=True, eq=False)
class Approach:
    """The recorded attack: steps (A,), and the distance of each training point to its nearest candidate (A, n)."""

    steps: Integers
    distances: Floats

    def found(self, radius: float) -> Integers:
        """Training points with a candidate of their class that near, by step."""
        found: Integers = (self.distances <= radius).sum(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class Explained:
    """One small training: steps (k,), the share of the weights its samples leave unexplained, the smallest margin."""

    steps: Integers
    residuals: Floats
    margins: Floats


def margin_course(circle: ShippedCircle) -> MarginCourse:
    """Read off the recorded output fields, at the training points, straight between the points of their grid."""
    fields = circle.fields
    outputs = (fields.fields.astype(np.float64) - MIDDLE) / 127 * fields.scale
    signs = np.where(circle.truth.labels == 1, 1.0, -1.0)
    return MarginCourse(fields.steps, _sampled(outputs, circle.truth.points, fields.reach) * signs)


def multipliers(circle: ShippedCircle) -> Multipliers:
    left = circle.attack
    return Multipliers(
        np.abs(left.multipliers).astype(np.float64),
        _distances(left.points, left.labels, circle.truth.points, circle.truth.labels).min(axis=1),
    )


def approach(circle: ShippedCircle) -> Approach:
    paths, truth = circle.candidates, circle.truth
    distances = [_distances(points, paths.labels, truth.points, truth.labels).min(axis=0) for points in paths.points]
    return Approach(paths.steps, np.stack(distances))


def found_by(circle: ShippedCircle) -> dict[str, int]:
    """Training points found within RADII[0]: by the attack, and by what has nothing to go by."""
    return {
        "the attack": circle.cleaned.found(RADII[0]),
        "model inversion": circle.controls["inversion"][0],
        "the attack on an untrained network": circle.controls["untrained"][0],
    }


def explained(start: float, decay: float, steps: int = 3000) -> Explained:
    """A network of one hidden layer, trained here and now on six points of the circle.

    Its neurons are ReLUs squared, sum_j a_j relu(w_j x)^2: homogeneous as in the papers, and without a kink at which
    gradient descent would go to and fro. Without biases.

    `start` is the standard deviation of its initial weights, `decay` the lambda of lambda/2 |theta|^2. Steps go along
    the gradient and change the weights by a fixed share, so that small starts get away too. The residual is
    |theta - sum lam_i y_i grad Phi(x_i)| / |theta| with the best multipliers >= 0 (Haim et al. 2022, Eq. 2).
    """
    angles = np.radians(_ANGLES)
    x, y = np.stack([np.cos(angles), np.sin(angles)], axis=1), np.array(_SIGNS)
    draws = np.random.default_rng(0)
    inner, outer = start * draws.standard_normal((_WIDTH, 2)), start * draws.standard_normal(_WIDTH)
    measured, residuals, margins = [], [], []
    for step in range(steps + 1):
        before = np.maximum(x @ inner.T, 0.0)
        hidden = before**2
        margin = y * (hidden @ outer)
        # Gradients of the margins, a row for each sample.
        inner_rows = (y[:, None] * outer * 2 * before)[:, :, None] * x[:, None, :]
        rows = np.concatenate([inner_rows.reshape(_POINTS, -1), y[:, None] * hidden], axis=1)
        theta = np.concatenate([inner.ravel(), outer])
        if step % _MEASURE_EVERY == 0:
            measured.append(step)
            residuals.append(_residual(rows, theta))
            margins.append(float(margin.min()))
        pull = rows.T @ (1.0 / (1.0 + np.exp(np.clip(margin, -50.0, 50.0)))) / _POINTS - decay * theta
        length = float(np.linalg.norm(pull))
        change = min(_LARGEST_CHANGE * float(np.linalg.norm(theta)) / max(length, 1e-30), _LARGEST_STEP)
        theta = theta + change * pull
        inner, outer = theta[: 2 * _WIDTH].reshape(_WIDTH, 2), theta[2 * _WIDTH :]
    return Explained(np.array(measured), np.array(residuals), np.array(margins))


_ANGLES = (10, 75, 130, 200, 250, 320)
_SIGNS = (1.0, 1.0, -1.0, 1.0, -1.0, -1.0)
_POINTS, _WIDTH, _MEASURE_EVERY = 6, 40, 50
_LARGEST_CHANGE, _LARGEST_STEP = 0.02, 0.5


def _residual(rows: Floats, theta: Floats) -> float:
    _, left = nnls(rows.T, theta)
    return float(left / np.linalg.norm(theta))


def _sampled(outputs: Floats, points: Points, reach: float) -> Floats:
    """Fields (F, side, side), rows from top to bottom, at points (n, 2)."""
    side = outputs.shape[-1]
    column = (points[:, 0].astype(np.float64) / reach + 1) / 2 * (side - 1)
    row = (1 - points[:, 1].astype(np.float64) / reach) / 2 * (side - 1)
    left, top = (np.clip(np.floor(place).astype(int), 0, side - 2) for place in (column, row))
    across, down = column - left, row - top
    above = outputs[:, top, left] * (1 - across) + outputs[:, top, left + 1] * across
    below = outputs[:, top + 1, left] * (1 - across) + outputs[:, top + 1, left + 1] * across
    found: Floats = above * (1 - down) + below * down
    return found


def _distances(points: Points, labels: Integers, truth: Points, classes: Integers) -> NDArray[np.float64]:
    """(m, n), infinite between classes."""
    apart = np.linalg.norm(points[:, None].astype(np.float64) - truth[None].astype(np.float64), axis=2)
    return np.where(labels[:, None] == classes[None], apart, np.inf)
