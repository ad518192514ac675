"""A study in a few lines, for a terminal or the top of a page."""

from __future__ import annotations

from recon_core.store import RunStore
from recon_core.studies.claims import verdicts
from recon_core.studies.findings import count_finding, overview
from recon_core.studies.results import study_results


def summary_lines(store: RunStore, run_id: str) -> list[str]:
    """How much was done, the counts by panel, and whether the papers' claims agree."""
    results = study_results(store, run_id)
    counts = [count_finding(results, panel) for panel in results.panels]
    claims = [f"claim: {verdict.claim.text} {verdict.text}" for verdict in verdicts(results)]
    return [overview(results), *counts, *claims]
