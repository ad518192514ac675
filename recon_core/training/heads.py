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
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from recon_core.config import LossName
from recon_core.data import signs_of

# More groups than this only resolve rivals whose weight is already negligible.
MAX_GROUPS = 4
# Below this the softplus equals its argument's exponential to float precision, so its log is the argument.
_LINEAR_BELOW = -15.0


class Rows(NamedTuple):
    """Values q (n, G) and their gradients dq/dphi (n, G, C)."""

    values: Tensor
    directions: Tensor


class LogLoss(NamedTuple):
    """log of the summed loss, and w = -d log(sum)/dq (n, G), which is non-negative and sums to about 1."""

    log_total: Tensor
    weights: Tensor


def log_softplus(s: Tensor) -> Tensor:
    """log(log(1 + e^s)), exact where e^s underflows."""
    return torch.where(s < _LINEAR_BELOW, s, F.softplus(s).log())


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

    def signs(self, dtype: torch.dtype) -> Tensor:
        """Binary and regression targets +-1."""
        return signs_of(self.labels).to(dtype)

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
        """Classifiers only: the log of the summed loss, right however small that sum is."""
        s = (-q).logsumexp(1)
        log_total = log_softplus(s).logsumexp(0)
        weights = torch.exp(F.logsigmoid(s) - log_total)[:, None] * (-q).softmax(1)
        return LogLoss(log_total, weights)

    def log_mean_loss(self, q: Tensor) -> Tensor:
        """log of the mean loss; for regression too, where it is simply the log."""
        if self.loss.classifies:
            return log_softplus((-q).logsumexp(1)).logsumexp(0) - torch.log(torch.tensor(float(self.n)))
        return self.sample_losses(q).mean().log()

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
