"""Studies and searches in a zip: what is sound arrives as it was, what is not costs one row and never a page."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon_core.errors import InputError
from recon_core.kinds import import_zip
from recon_core.runs.contents import fault_in
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.results import study_results
from recon_core.studies.study import StudyConfig, create_study
from tests.studies.tiny_studies import do_study, tiny_plan

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A finished study, and its zip."""
    store = RunStore(tmp_path_factory.mktemp("theirs") / "runs")
    run = create_study(store, StudyConfig(plan=tiny_plan(), workers=1))
    do_study(run)
    return run, store.export(run.id, store.root.parent)


def test_a_sound_study_arrives_with_its_numbers(sent: tuple[Run, Path], store: RunStore) -> None:
    run, archive = sent
    arrived = import_zip(store, archive)
    assert {each.status().state for each in arrived} == {RunState.DONE}
    here, there = study_results(store, run.id), study_results(RunStore(run.dir.parent), run.id)
    assert here.table == there.table
    assert here.complete


WRONG: dict[str, Change] = {
    "reference is a number": lambda kept: kept["cells"][0].update(reference=2**70),
    "runs are text": lambda kept: kept["cells"][1].update(runs="\u202e"),
    "a state nobody knows": lambda kept: kept["cells"][0].update(state="won"),
    "a count is text": lambda kept: kept["cells"][0]["numbers"].update(good="many"),
    "a count is huge": lambda kept: kept["cells"][0]["numbers"].update(of=2**70),
    "a name is a number": lambda kept: kept["cells"][0]["numbers"].update(ssim_kind=7),
    "no cells": lambda kept: kept.pop("cells"),
    "cells are a number": lambda kept: kept.update(cells=7),
    "steps are a list": lambda kept: kept.update(steps=[]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_cells_that_make_no_sense(sent: tuple[Run, Path], store: RunStore, tmp_path: Path, wrong: str) -> None:
    run, archive = sent
    kept = json.loads((run.dir / "cells.json").read_text())
    WRONG[wrong](kept)
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for name in whole.namelist():
            forged = name == f"{run.id}/cells.json"
            bad.writestr(name, json.dumps(kept) if forged else whole.read(name))
    import_zip(store, tmp_path / "bad.zip")
    arrived = store.open(run.id)
    assert "cells.json" in fault_in(arrived.dir)
    assert arrived.status().state is RunState.FAILED
    with pytest.raises(InputError, match="makes no sense"):
        study_results(store, run.id)
    with pytest.raises(InputError, match="was imported and makes no sense"):
        arrived.refuse_nonsense()
