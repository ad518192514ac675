"""Losses, seen through the scalars they depend on.

A network's outputs phi (n, C) enter every loss through a few scalars per sample, here called rows:
  binary      q = y phi                                    one row, y = +-1
  regression  q = phi                                      one row
  multiclass  q_g = -logsumexp over the rivals in group g of (phi_j - phi_label)
The strongest rivals get a group each and the remaining ones share the last, so the loss below is
exactly the cross-entropy while the number of rows stays small however many classes there are.
For classifiers the loss of a sample is softplus(s) with s = logsumexp_g(-q_g); for one row that is
the logistic loss log(1 + exp(-q)) of Haim et al. 2022, Section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from recon_core.config import Task
from recon_core.data import signs_of
from recon_core.losses import LOSSES, LossFunction

# More groups than this only resolve rivals whose weight is already negligible.
MAX_GROUPS = 4
# Stands for e^s where that underflows; any number whose log1p is itself would do.
_TINY = 1e-30
# From here on softplus(s) is s to rounding.
_LARGE = 30.0


class Rows(NamedTuple):
    """Values q (n, G) and their gradients dq/dphi (n, G, C)."""

    values: Tensor
    directions: Tensor


class LogLoss(NamedTuple):
    """log of the mean loss, and w = -d log(mean loss)/dq (n, G): non-negative, about 1 in all."""

    log_mean: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Loss:
    """A registered loss on one set of labels. `labels` are class indices (n,), signs are derived from them."""

    name: str
    labels: Tensor
    huber_delta: float = 1.0

    @property
    def n(self) -> int:
        return len(self.labels)

    @cached_property
    def function(self) -> LossFunction:
        return LOSSES[self.name]

    def subset(self, samples: Tensor) -> Loss:
        return Loss(self.name, self.labels[samples], self.huber_delta)

    @cached_property
    def _signs(self) -> Tensor:
        return signs_of(self.labels)

    def signs(self, dtype: torch.dtype) -> Tensor:
        """Binary and regression targets +-1."""
        return self._signs.to(dtype)

    def rows(self, phi: Tensor) -> Rows:
        """The scalars this loss depends on."""
        n, outputs = phi.shape
        if self.function.task is Task.BINARY:
            y = self.signs(phi.dtype)[:, None]
            return Rows(y * phi, y[:, :, None])
        if self.function.task is Task.REGRESSION:
            return Rows(phi, torch.ones_like(phi)[:, :, None])
        lead = phi - phi.gather(1, self.labels[:, None])
        rivals = lead.scatter(1, self.labels[:, None], -torch.inf)
        groups = min(outputs - 1, MAX_GROUPS)
        ranked = rivals.argsort(dim=1, descending=True, stable=True)
        member = torch.zeros(n, groups, outputs, dtype=torch.bool, device=phi.device)
        for group in range(groups):
            ranks = slice(group, group + 1) if group + 1 < groups else slice(group, outputs - 1)
            member[:, group].scatter_(1, ranked[:, ranks], True)
        grouped = rivals[:, None, :].masked_fill(~member, -torch.inf)
        values = -grouped.logsumexp(2)
        directions = -grouped.softmax(2)
        directions.scatter_(2, self.labels[:, None, None].expand(n, groups, 1), 1.0)
        return Rows(values, directions)

    def sample_losses(self, q: Tensor) -> Tensor:
        """Loss of each sample (n,) from its row values (n, G)."""
        scalar = (-q).logsumexp(1) if self.function.classifies else q[:, 0] - self.signs(q.dtype)
        return self.function.value(scalar, self.huber_delta)

    def slopes(self, q: Tensor) -> Tensor:
        """d(sample loss)/dq (n, G)."""
        if self.function.classifies:
            return -self.function.slope((-q).logsumexp(1, keepdim=True), self.huber_delta) * (-q).softmax(1)
        return self.function.slope(q - self.signs(q.dtype)[:, None], self.huber_delta)

    def output_gradients(self, phi: Tensor, smoothing: float = 0.0) -> Tensor:
        """d(sample loss)/dphi (n, C), labels smoothed as in torch: 1 - s + s / K at the label, s / K elsewhere.

        The cross-entropy is linear in the label, so smoothing adds the same for every phi: of K classes, s at the
        label and -s / K at all; of two in one output, s / 2 times the sign. Classifiers only.
        """
        rows = self.rows(phi)
        gradients = (self.slopes(rows.values)[:, :, None] * rows.directions).sum(1)
        if not smoothing:
            return gradients
        if self.function.task is Task.BINARY:
            return gradients + smoothing / 2 * self.signs(phi.dtype)[:, None]
        gradients = gradients - smoothing / phi.shape[1]
        return gradients.scatter_add(1, self.labels[:, None], torch.full_like(phi[:, :1], smoothing))

    def curvatures(self, q: Tensor) -> Tensor:
        """Hessian of the sample loss in its rows (n, G, G), positive semi-definite."""
        if self.function.classifies:
            s = (-q).logsumexp(1)[:, None, None]
            p = (-q).softmax(1)
            first, second = self.function.slope(s, self.huber_delta), self.function.curvature(s, self.huber_delta)
            outer = p[:, :, None] * p[:, None, :]
            return first * (torch.diag_embed(p) - outer) + second * outer
        return self.function.curvature(q - self.signs(q.dtype)[:, None], self.huber_delta)[:, :, None]

    def log_loss(self, q: Tensor) -> LogLoss:
        """Losses with `log_form` only: the log of the mean loss, right however small that is.

        With e^top, the largest e^s, taken out of all terms: softplus(s) = e^s * log(1 + e^s) / e^s, whose last
        factor is 1 where e^s underflows, and sigmoid(s) = e^s / (1 + e^s). Written with few and simple
        operations, because flow calls this many times a step on a handful of numbers.
        """
        one_row = q.shape[1] == 1
        s = -q[:, 0] if one_row else (-q).logsumexp(1)
        top = s.amax()
        if float(top) > _LARGE:  # e^s would overflow, and nothing is small
            total = softplus(s).sum()
            weights, log_mean = (s.sigmoid() / total)[:, None], (total / self.n).log_()
        else:
            scaled = (s - top).exp_()
            power = s.exp_().clamp_min_(_TINY)
            total = (power.log1p() / power).mul_(scaled).sum()
            weights = scaled.div_(power.add_(1.0)).div_(total)[:, None]
            log_mean = (total / self.n).log_().add_(top)
        return LogLoss(log_mean, weights if one_row else weights * (-q).softmax(1))

    def log_mean_loss(self, q: Tensor) -> Tensor:
        """log of the mean loss; without `log_form` it is simply the log."""
        return self.log_loss(q).log_mean if self.function.log_form else self.sample_losses(q).mean().log()

    def margins(self, phi: Tensor) -> Tensor:
        """Signed distance to a wrong answer (n,): y phi, or the true output minus its best rival."""
        if self.function.task is Task.MULTICLASS:
            own = phi.gather(1, self.labels[:, None])
            return (own - phi.scatter(1, self.labels[:, None], -torch.inf).amax(1, keepdim=True))[:, 0]
        return self.signs(phi.dtype) * phi[:, 0]

    def margin_directions(self, phi: Tensor) -> Tensor:
        """d(margin)/dphi (n, C): y, or +1 at the label and -1 at its best rival (Buzaglo et al. 2023)."""
        if self.function.task is Task.MULTICLASS:
            rival = phi.scatter(1, self.labels[:, None], -torch.inf).argmax(1, keepdim=True)
            return torch.zeros_like(phi).scatter(1, self.labels[:, None], 1.0).scatter(1, rival, -1.0)
        return self.signs(phi.dtype)[:, None]
