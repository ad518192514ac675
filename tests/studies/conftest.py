"""A finished study for tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon_core.store import RunStore
from recon_core.studies.study import StudyConfig, create_study
from tests.gates import gates  # noqa: F401
from tests.studies.tiny_studies import do_study, tiny_plan


@pytest.fixture(scope="session")
def done_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str]:
    """A finished study in a store of its own, for tests that only look: two values, a reference, two seeds."""
    store = RunStore(Path(tmp_path_factory.mktemp("study")) / "runs")
    claims = [
        {"text": "Decay helps.", "check": "some values raise the count above that of the first"},
        {"text": "Images <b>come</b> back.", "check": "images come back at every value"},
    ]
    run = create_study(store, StudyConfig(plan=tiny_plan(seeds=[0, 1], claims=claims, about="About <this>.")))
    do_study(run)
    return store, run.id
