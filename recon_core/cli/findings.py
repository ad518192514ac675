"""What a finished run found, in a few lines, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recon_core.cli.audit_findings import findings as audit_findings
from recon_core.cli.console import out
from recon_core.cli.match import findings as match_findings
from recon_core.store import Run, RunStore
from recon_core.units import LOG10_LOSS, log10_loss

Result = Mapping[str, Any]


def print_findings(run: Run) -> None:
    """The lines for this kind of run; a kind without any is silent."""
    if run.kind in FINDINGS:
        for line in FINDINGS[run.kind](run, run.result() or {}):
            out().print("  " + line, markup=False)


def _training(run: Run, result: Result) -> list[str]:
    explained = 1 - result["kkt_layer1"] ** 2
    lines = [
        f"{LOG10_LOSS} {log10_loss(result['log_loss']):.1f}, train error {result['train_error']:.1%}, "
        f"smallest margin {result['margin_min']:.4g}",
        f"{result['on_margin']} of {result['n']} samples are on the margin; "
        f"{explained:.0%} of layer 1 is explained by samples (KKT residual {result['kkt_layer1']:.2f})",
    ]
    if "test_error" in result:
        lines.append(f"test error {result['test_error']:.1%}, test loss {result['test_loss']:.3g}")
    if "log10_epochs" in result:
        lines.append(f"equivalent to 10^{result['log10_epochs']:.1f} epochs of gradient descent at the papers' rate")
    if "gradient_norm" in result:
        lines.append(f"gradient norm {result['gradient_norm']:.3f} of the decay term (0 is stationary)")
    return [*lines, _attack_next(run)]


def _model(run: Run, result: Result) -> list[str]:
    return [*result["notes"], _attack_next(run)]


def _reconstruction(run: Run, result: Result) -> list[str]:
    lines = [f"{result['candidates']} candidates" + (f" of {result['baseline']}" if result["baseline"] else "")]
    if result.get("certain") is not None:
        from recon_core.attacks.stepper import CERTAIN

        lines.append(f"{result['certain']} of them are certain: their confidence is above {CERTAIN:g}")
    if "residual" in result:
        lines.append(_residuals(result))
    if "output_min" in result:
        lines.append(f"outputs from {result['output_min']:.4g} to {result['output_max']:.4g}")
    if circle := result.get("circle"):
        lines.append(
            f"{circle['filtered']} points have multipliers of at least {circle['threshold']:.3g}; "
            f"{circle['kept']} are left where of those nearer than {circle['distance']} to each other one is kept"
        )
    return [*lines, *_match_next(run)]


def _search(run: Run, result: Result) -> list[str]:
    best = result["best"]
    lines = [
        f"{result['candidates']} candidates pooled from {result['complete']} trials; {result['pruned']} were pruned"
    ]
    if best is not None:
        chosen = ", ".join(f"{name}={value:.4g}" for name, value in best["params"].items())
        lines.append(f"best: trial {best['number']}, residual {best['value']:.4f}, {chosen}")
    return [*lines, *_match_next(run)]


def _audit(run: Run, result: Result) -> list[str]:
    from recon_core.views.audits import read_report

    return audit_findings(read_report(run))


def _study(run: Run, result: Result) -> list[str]:
    from recon_core.studies.summary import summary_lines

    return [*summary_lines(RunStore(run.dir.parent), run.id), f"next: python -m recon_core report {run.id}"]


def _residuals(result: Result) -> str:
    """Shares of the squared weights that the candidates leave unexplained."""
    depth = sum(name.startswith("residual_layer") for name in result)
    layers = ", ".join(_share(result[f"residual_layer{index + 1}"]) for index in range(depth))
    return f"relative KKT residual {_share(result['residual'])}; layer by layer {layers}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _attack_next(run: Run) -> str:
    return f"next: python -m recon_core reconstruct --model {run.id}"


def _match_next(run: Run) -> list[str]:
    """The next command: matching, where the training samples are known because the model was trained here."""
    store = RunStore(run.dir.parent)
    known = all(store.open(parent).kind == "train" for parent in run.parents)
    return [f"next: python -m recon_core match {run.id}"] if known and run.config.get("baseline") != "kernels" else []


FINDINGS: dict[str, Callable[[Run, Result], list[str]]] = {
    "train": _training,
    "model": _model,
    "reconstruct": _reconstruction,
    "search": _search,
    "match": lambda run, result: match_findings(result),
    "audit": _audit,
    "study": _study,
}
