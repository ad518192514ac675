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
from torch.nn import functional as F

from recon_core.config import LossName
from recon_core.data import signs_of

# More groups than this only resolve rivals whose weight is already negligible.
MAX_GROUPS = 4
# Stands for e^s where that underflows; any number whose log1p is itself would do.
_TINY = 1e-30


class Rows(NamedTuple):
    """Values q (n, G) and their gradients dq/dphi (n, G, C)."""

    values: Tensor
    directions: Tensor


class LogLoss(NamedTuple):
    """log of the mean loss, and w = -d log(mean loss)/dq (n, G): non-negative, about 1 in all."""

    log_mean: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Head:
    """One loss on one set of labels. `labels` are class indices (n,), signs are derived from them."""

    loss: LossName
    labels: Tensor
    huber_delta: float = 1.0

    @property
    def n(self) -> int:
        return len(self.labels)

    def subset(self, samples: Tensor) -> Head:
        return Head(self.loss, self.labels[samples], self.huber_delta)

    @cached_property
    def _signs(self) -> Tensor:
        return signs_of(self.labels)

    def signs(self, dtype: torch.dtype) -> Tensor:
        """Binary and regression targets +-1."""
        return self._signs.to(dtype)

    def rows(self, phi: Tensor) -> Rows:
        """The scalars this loss depends on."""
        n, outputs = phi.shape
        if self.loss is LossName.LOGISTIC:
            y = self.signs(phi.dtype)[:, None]
            return Rows(y * phi, y[:, :, None])
        if self.loss is not LossName.CROSS_ENTROPY:
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
        if self.loss.classifies:
            return F.softplus((-q).logsumexp(1))
        error = q[:, 0] - self.signs(q.dtype)
        if self.loss is LossName.L2:
            return error.square()
        if self.loss is LossName.L25:
            return error.abs().pow(2.5)
        return F.huber_loss(error, torch.zeros_like(error), delta=self.huber_delta, reduction="none")

    def slopes(self, q: Tensor) -> Tensor:
        """d(sample loss)/dq (n, G)."""
        if self.loss.classifies:
            return -torch.sigmoid((-q).logsumexp(1, keepdim=True)) * (-q).softmax(1)
        error = q - self.signs(q.dtype)[:, None]
        if self.loss is LossName.L2:
            return 2.0 * error
        if self.loss is LossName.L25:
            return 2.5 * error.sign() * error.abs().pow(1.5)
        return error.clamp(-self.huber_delta, self.huber_delta)

    def curvatures(self, q: Tensor) -> Tensor:
        """Hessian of the sample loss in its rows (n, G, G), positive semi-definite."""
        if self.loss.classifies:
            s = (-q).logsumexp(1)
            p = (-q).softmax(1)
            first = torch.sigmoid(s)[:, None, None]
            outer = p[:, :, None] * p[:, None, :]
            return first * (torch.diag_embed(p) - outer) + first * (1 - first) * outer
        error = q - self.signs(q.dtype)[:, None]
        if self.loss is LossName.L2:
            second = torch.full_like(error, 2.0)
        elif self.loss is LossName.L25:
            second = 3.75 * error.abs().sqrt()
        else:
            second = (error.abs() <= self.huber_delta).to(error.dtype)
        return second[:, :, None]

    def log_loss(self, q: Tensor) -> LogLoss:
        """Classifiers only: the log of the mean loss, right however small that is.

        With e^top, the largest e^s, taken out of all terms: softplus(s) = e^s * log(1 + e^s) / e^s, whose last
        factor is 1 where e^s underflows, and sigmoid(s) = e^s / (1 + e^s). Written with few and simple
        operations, because flow calls this many times a step on a handful of numbers.
        """
        one_row = q.shape[1] == 1
        s = -q[:, 0] if one_row else (-q).logsumexp(1)
        top = s.amax()
        scaled = (s - top).exp_()
        power = s.exp_().clamp_min_(_TINY)
        total = (power.log1p() / power).mul_(scaled).sum()
        weights = scaled.div_(power.add_(1.0)).div_(total)[:, None]
        log_mean = (total / self.n).log_().add_(top)
        return LogLoss(log_mean, weights if one_row else weights * (-q).softmax(1))

    def log_mean_loss(self, q: Tensor) -> Tensor:
        """log of the mean loss; for regression too, where it is simply the log."""
        return self.log_loss(q).log_mean if self.loss.classifies else self.sample_losses(q).mean().log()

    def margins(self, phi: Tensor) -> Tensor:
        """Signed distance to a wrong answer (n,): y phi, or the true output minus its best rival."""
        if self.loss is LossName.CROSS_ENTROPY:
            own = phi.gather(1, self.labels[:, None])
            return (own - phi.scatter(1, self.labels[:, None], -torch.inf).amax(1, keepdim=True))[:, 0]
        return self.signs(phi.dtype) * phi[:, 0]

    def margin_directions(self, phi: Tensor) -> Tensor:
        """d(margin)/dphi (n, C): y, or +1 at the label and -1 at its best rival (Buzaglo et al. 2023)."""
        if self.loss is LossName.CROSS_ENTROPY:
            rival = phi.scatter(1, self.labels[:, None], -torch.inf).argmax(1, keepdim=True)
            return torch.zeros_like(phi).scatter(1, self.labels[:, None], 1.0).scatter(1, rival, -1.0)
        return self.signs(phi.dtype)[:, None]
