"""The report of an audit in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recon_core.auditing.report import AuditReport


def findings(report: AuditReport) -> list[str]:
    """The report in a few lines."""
    leak, certain, fit = report.leak, report.certain, report.fit
    controls = leak.controls
    lines = [report.verdict.sentence]
    if report.verdict.level != "leaks":
        lines += [f"why the attack may miss what leaks: {reason}" for reason in report.reasons]
    lines.append(f"fit: {fit.sentence}; inputs taken as {report.data.normalisation}")
    if fit.kkt_residual_by_layer is not None:
        residuals = ", ".join(f"{name} {residual:.2f}" for name, residual in fit.kkt_residual_by_layer.items())
        lines.append(f"KKT residual at these images, layer by layer: {residuals} (0 is wholly explained)")
    chance = [f"the mean image matches {controls.mean_image}"]
    if controls.untrained is not None:
        chance.append(f"an untrained network's candidates {controls.untrained}")
    if controls.held_out is not None:
        chance.append(f"{controls.held_out} of {controls.held_out_of} held-out images match")
    lines.append(f"chance level {leak.chance}: {', '.join(chance)}")
    if leak.other_window is not None:
        lines.append(f"reconstructed are {leak.other_window}; all other counts are with the 11x11 window")
    if certain is not None and certain.precision is not None:
        lines.append(
            f"{certain.certain} candidates are certain, {certain.real} of them real: precision {certain.precision:.0%} "
            f"({certain.precision_low:.0%} to {certain.precision_high:.0%})"
        )
    for test in report.membership:
        rates = ", ".join(
            f"{at.true_positive_rate:.1%} ({at.low:.1%} to {at.high:.1%}) at {at.false_positive_rate:.1%} FPR"
            for at in test.at
            if at.resolved
        )
        few = "" if rates else "too few held-out images for rates of false positives of 1% or less"
        lines.append(
            f"membership by {test.name}: AUC {test.auc:.3f} ({test.auc_low:.3f} to {test.auc_high:.3f}), {rates or few}"
        )
    if not report.membership:
        lines.append("membership was not tested: give images that were not trained on by --held-out")
    return lines
