"""A finished audit: its report, and the pictures that go with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from recon_core.analysis.pairs import BestPairs
from recon_core.auditing.judging import pictures_of as pictures_of
from recon_core.auditing.page import render
from recon_core.auditing.report import AuditReport
from recon_core.errors import InputError
from recon_core.runs.audit import PICTURES
from recon_core.store import Run


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The answer, its report, and the pictures of the report in the order of its rows, the most exposed first."""

    report: AuditReport
    images: Tensor
    """(n, C, H, W), uint8: the training images."""
    reconstructions: Tensor
    """(n, C, H, W), uint8: what was drawn out of the weights."""
    run: Run | None = None

    @property
    def leaks(self) -> bool:
        """Whether more images came back than chance explains."""
        return self.report.verdict.level == "leaks"

    def to_html(self) -> str:
        """The report as one page that needs nothing beside it."""
        return render(self.report, self.images.numpy(), self.reconstructions.numpy())

    def to_json(self) -> str:
        """The report by its schema, `AuditReport.model_json_schema()`."""
        return self.report.model_dump_json(indent=2)

    def save(self, path: str | Path) -> Path:
        """Write the report; the name ends in .html or .json."""
        file = Path(os.path.expanduser(path))
        if file.suffix not in (".html", ".json"):
            raise InputError(f"a report is an .html or a .json file, got {str(path)!r}; name it audit.html")
        file.write_text(self.to_html() if file.suffix == ".html" else self.to_json(), encoding="utf-8")
        return file

    def __repr__(self) -> str:
        return f"Audit({self.report.verdict.sentence})"

    def _repr_html_(self) -> str:
        return self.to_html()


def read_audit(run: Run) -> Audit:
    """A finished audit run as `audit` gave it; one from elsewhere may hold anything, and is then a sentence."""
    report, pictures = read_report(run), run.tensors(PICTURES)
    images, reconstructions = (pictures.get(name) for name in ("images", "reconstructions"))
    if images is None or reconstructions is None or images.shape != reconstructions.shape:
        raise _damaged(run)
    shape = (len(report.images), *report.model.input_shape)
    if tuple(images.shape) != shape or not images.dtype == reconstructions.dtype == torch.uint8:
        raise _damaged(run)
    return Audit(report, images, reconstructions, run)


def read_report(run: Run) -> AuditReport:
    """The report alone."""
    try:
        return AuditReport.model_validate(run.result() or {})
    except ValidationError:
        raise _damaged(run) from None


def _damaged(run: Run) -> InputError:
    return InputError(f"the report of run {run.id} does not read as one, it is {run.status().state}; audit again")


def most_exposed(audit: Audit, k: int) -> BestPairs:
    """The k most exposed images beside their reconstructions."""
    rows = audit.report.images[:k]
    return BestPairs(
        images=(audit.images[:k].float() / 255).numpy(),
        reconstructions=(audit.reconstructions[:k].float() / 255).numpy(),
        ssim=np.array([-1.0 if row.ssim is None else row.ssim for row in rows]),
        samples=np.arange(len(rows)),
        threshold=audit.report.leak.threshold,
    )
