"""What searches and studies hold, beside `recon_core.runs.contents`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recon_core.runs.contents import CONTENTS, ArchitectureFacts, Content, Count, Facts, Number, Text
from recon_core.store import Run
from recon_core.studies.record import read_record
from recon_core.studies.search import SearchConfig, TrialConfig
from recon_core.studies.study import StudyConfig


class SearchResult(Facts):
    trials: Count
    complete: Count
    best: dict[str, Any]
    residual: Number
    candidates: Count
    architecture: ArchitectureFacts
    model: Text
    warning: Text | None = None


class StudyResult(Facts):
    name: Text
    models: Count
    done: Count
    failed: list[dict[str, Text]]


def _cells(folder: Path) -> None:
    read_record(Run(folder))


CONTENTS["search"] = Content(config=SearchConfig, result=SearchResult)
CONTENTS["trial"] = Content(config=TrialConfig)
CONTENTS["study"] = Content(config=StudyConfig, result=StudyResult, also=_cells)
