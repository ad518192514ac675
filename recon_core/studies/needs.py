"""How much memory a run of any kind will take, from its config and what the store knows of the runs it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import AfterimageError
from recon_core.models import Architecture
from recon_core.runs.audit import AuditConfig
from recon_core.runs.match_request import size_of
from recon_core.runs.match_source import MatchConfig, common_model
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.scheduling import Places
from recon_core.scheduling.estimates import shape_of_data, shape_of_training
from recon_core.scheduling.local import local_places
from recon_core.scheduling.memory import attack_memory, matching_memory, together, training_memory
from recon_core.scheduling.slots import thread_limit
from recon_core.store import RunStore
from recon_core.studies.cells import expand
from recon_core.studies.plan import StudyPlan
from recon_core.studies.search import SearchConfig
from recon_core.studies.study import StudyConfig


def memory_of(store: RunStore, kind: str, config: Mapping[str, Any]) -> float | None:
    """Bytes at the peak of such a run, all its processes on this machine together; None where nobody can know."""
    try:
        match kind:
            case "train":
                return training_memory(parse_config(TrainConfig, config))
            case "reconstruct":
                asked = parse_config(ReconstructConfig, config)
                architecture, samples = _model(store, asked.model)
                return attack_memory(architecture, asked.settings, samples)
            case "audit":
                audit = parse_config(AuditConfig, config)
                architecture, samples = _model(store, audit.model)
                return audit_memory(architecture, audit, samples)
            case "search":
                search = parse_config(SearchConfig, config)
                architecture, samples = _model(store, search.model)
                return search_memory(architecture, search.settings.attack, search, samples)
            case "match":
                return match_memory(store, parse_config(MatchConfig, config))
            case "study":
                study = parse_config(StudyConfig, config)
                return study_memory(study.plan, study)
    except (AfterimageError, KeyError, TypeError, ValueError):  # whoever performs it will say what is wrong
        return None
    return None


def audit_memory(architecture: Architecture, config: AuditConfig, samples: int | None = None) -> float | None:
    """Of the attack, or of matching what it draws with the attached images, whichever is more.

    Of a folder it is not known how many images there are before it is read.
    """
    attack = attack_memory(architecture, config.settings, samples)
    if attack is None or config.attached.whole:
        return attack
    data, drawn = shape_of_data(config.attached.data), config.settings.m * config.settings.seeds
    return max(attack, 0.0 if data is None else matching_memory(data.n, data.test_n, data.inputs, drawn))


def search_memory(
    architecture: Architecture, attack: AttackSettings, places: Places, samples: int | None = None
) -> float | None:
    """Of as many attacks as are made at once; None on a cluster, whose memory is not this machine's."""
    if places.cluster is not None:
        return None
    at_once = len(local_places(places.workers or thread_limit()))
    return together([attack_memory(architecture, attack, samples)] * at_once, at_once)


def study_memory(plan: StudyPlan, places: Places) -> float | None:
    """Of the largest runs that may be at work at once; None on a cluster."""
    if places.cluster is not None:
        return None
    found = [
        max(
            filter(None, (training_memory(cell.training), attack_memory(cell.architecture, cell.attack, cell.n))),
            default=None,
        )
        for cell in expand(plan)
    ]
    return together(found, len(local_places(places.workers)))


def match_memory(store: RunStore, config: MatchConfig) -> float | None:
    """From what the attacks say they left."""
    runs = [store.open(run_id) for run_id in config.runs]
    shape = shape_of_training(parse_config(TrainConfig, common_model(store, runs).config))
    if shape is None:
        return None
    return matching_memory(shape.n, shape.test_n, shape.inputs, sum(size_of(run) for run in runs))


def _model(store: RunStore, model: str) -> tuple[Architecture, int | None]:
    """The network of a run, and how many samples it was trained on where that is known."""
    result = store.open(model).result() or {}
    return Architecture.from_json(result["architecture"]), result.get("n")
