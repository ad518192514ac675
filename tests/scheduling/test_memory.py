"""Memory said beforehand: beside what runs really take, refused with both numbers, insisted on; parts tried again."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recon_core as rc
from recon_core.attacks import AttackSettings
from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.models import Architecture
from recon_core.runs import StopFlag
from recon_core.runs.attached import attached_data
from recon_core.runs.audit import AuditConfig
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.scheduling import Ended, Places, memory
from recon_core.scheduling.local import LocalExecutor
from recon_core.scheduling.memory import FreeMemory, attack_memory, free_memory, matching_memory, training_memory
from recon_core.scheduling.queue import module_environment
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.needs import audit_memory, memory_of, search_memory, study_memory
from recon_core.studies.requests import create_search
from recon_core.studies.search import SearchConfig, perform_search
from recon_core.studies.study import StudyConfig, create_study
from tests.small_models import imported_model
from tests.studies.tiny_studies import FLOW, InlineExecutor, do_study, tiny_plan

Cli = Callable[..., tuple[int, str, str]]

# One process does them all, each in a child that is forked before anything large was there: libraries load once.
MEASURE = """
import json, os, resource, sys
from pathlib import Path
import recon_core.library  # all that a run needs
from recon_core.kinds import load_all, perform
from recon_core.runs import StopFlag
from recon_core.store import RunStore
load_all()
store = RunStore(Path(sys.argv[1]))
made = []
for kind, config, above in json.loads(sys.argv[2]):
    parents = [] if above is None else [made[above]]
    config |= {} if above is None else {"runs": parents} if kind == "match" else {"model": parents[0]}
    run = store.create(kind, config, parents=parents)
    made.append(run.id)
    child = os.fork()
    if child == 0:
        os._exit(0 if str(perform(run, StopFlag())) == "done" else 1)
    _, status, used = os.wait4(child, 0)
    print(json.dumps([run.id, run.kind, run.config, status, used.ru_maxrss * 1024]), flush=True)
"""


def training(widths: list[int], recipe: str, n: int = 20, **more: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"recipe": recipe, "epochs": 2, **more.pop("training", {})}
    data = {"source": "cifar10", "n": n, **more.pop("data", {})}
    return {"data": data, "model": {"widths": widths, **more}, "training": settings}


def attack(recipe: str, m: int, **more: Any) -> dict[str, Any]:
    return {"settings": {"recipe": recipe, "m": m, "iterations": 2, **more}}


# Kind, config, and the number of the run that it is made from.
MEASURED: list[tuple[str, dict[str, Any], int | None]] = [
    ("train", training([200, 200], "flow"), None),
    ("train", training([1800, 1800], "paper"), None),
    ("train", training([1200, 1200], "paper", dtype="float64"), None),
    ("train", training([500, 500], "stationary", n=300, training={"weight_decay": 1e-4}), None),
    ("train", training([200], "flow", conv_kernel=3, conv_channels=16), None),
    ("reconstruct", attack("fast", 2000), 0),
    ("reconstruct", attack("paper", 100), 2),
    ("reconstruct", attack("paper", 2000), 0),
    ("reconstruct", attack("copies", 500), 0),
    ("match", {}, 5),
]


def test_the_estimate_is_within_a_factor_of_two_of_what_runs_take(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "measured"), json.dumps(MEASURED)],
        env={**module_environment(), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    store = RunStore(tmp_path / "measured")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(MEASURED)
    wrong = []
    for _, kind, config, status, measured in found:
        assert status == 0
        expected = memory_of(store, kind, config)
        assert expected is not None
        if not 0.5 < expected / measured < 2:
            wrong.append(f"{kind} {config}: {memory.gib(expected)} for {memory.gib(measured)}")
    assert wrong == []


def test_more_takes_more() -> None:
    def config(**model: Any) -> TrainConfig:
        return parse_config(TrainConfig, training([1000, 1000], "flow", **model))

    base = training_memory(config())
    assert base is not None
    for harder in ({"widths": [20_000, 20_000]}, {"dtype": "float64"}):
        changed = parse_config(
            TrainConfig, {**config().model_dump(), "model": {**config().model.model_dump(), **harder}}
        )
        assert (training_memory(changed) or 0) > base
    architecture = Architecture((3, 32, 32), (1000, 1000), 1)
    few, many = (attack_memory(architecture, AttackSettings(recipe="paper", m=m)) or 0 for m in (100, 100_000))
    assert many > 2 * few
    assert matching_memory(50, 50, 3072, 10**6) > 2 * matching_memory(50, 50, 3072, 10**4)
    one, two = (search_memory(architecture, AttackSettings(), Places(workers=workers)) or 0 for workers in (1, 2))
    assert two == 2 * one
    assert search_memory(architecture, AttackSettings(), Places(cluster="auto")) is None
    plan = tiny_plan()
    assert (study_memory(plan, Places(workers=2)) or 0) > (study_memory(plan, Places(workers=1)) or 0)


class TestFree:
    def test_a_limit_of_the_process_counts(self) -> None:
        command = "from recon_core.scheduling.memory import free_memory; print(*free_memory(), sep='|')"
        answer = subprocess.run(
            [sys.executable, "-c", command],
            env=module_environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30,) * 2),
            capture_output=True,
            text=True,
            check=True,
        )
        free, limit = answer.stdout.strip().split("|")
        assert 0 < float(free) < 2 * 2**30
        assert "ulimit -v" in limit

    def test_a_limit_of_the_container_counts(self, tmp_path: Path) -> None:
        """Of any group above this process; files that are only cached are as good as free."""
        group = tmp_path / "user" / "own"
        group.mkdir(parents=True)
        (tmp_path / "cgroup").write_text("0::/user/own\n")
        (group / "memory.max").write_text("max\n")
        (group / "memory.current").write_text("5\n")
        (group.parent / "memory.max").write_text("1000\n")
        (group.parent / "memory.current").write_text("700\n")
        (group.parent / "memory.stat").write_text("anon 500\ninactive_file 200\n")
        assert list(memory._cgroup_room(tmp_path, tmp_path / "cgroup")) == [500]

    def test_there_is_some(self) -> None:
        assert free_memory().bytes > 0


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a tenth of a GiB to spare."""
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(0.1 * 2**30, "free"))


TRAIN = ("train", "--preset", "none", "-s", "data.source=circle", "-s", "data.n=6", "-s", "widths=20", "-s", "epochs=2")


@pytest.mark.usefixtures("little")
class TestRefused:
    def test_by_the_command_line_with_both_numbers(self, cli: Cli, store: RunStore) -> None:
        code, _, said = cli(*TRAIN)
        assert code == 2
        assert "it takes about 0.3 GiB of memory and 0.1 GiB are free" in said
        assert "insist with --anyway" in said
        assert said.count("\n") == 1
        assert store.list() == []
        assert cli(*TRAIN, "--anyway", "--quiet")[0] == 0

    def test_every_kind_of_run(self, cli: Cli, store: RunStore) -> None:
        model = cli(*TRAIN, "--anyway", "--quiet")[1].strip()
        attacked = cli("reconstruct", "--model", model, "--m", "4", "-s", "iterations=2", "--anyway", "--quiet")[
            1
        ].strip()
        assert store.open(attacked).status().state is RunState.DONE
        network = cli(
            "train", "--preset", "none", "-s", "data.n=4", "-s", "widths=9", "-s", "epochs=2", "--anyway", "-q"
        )[1].strip()
        before = len(store.list())
        for command in (
            ("reconstruct", "--model", model),
            ("baseline", model, "--kind", "untrained"),
            ("search", "--model", model, "--trials", "1"),
            ("match", attacked),
            ("study", "circle", "--seeds", "1"),
            ("runs", "repeat", model),
            ("audit", network, "--data", "cifar10", "--n", "4"),
        ):
            code, _, said = cli(*command)
            assert code == 2, command
            assert "GiB are free; make it smaller, or insist with --anyway" in said, command
        assert len(store.list()) == before

    def test_by_the_library(self) -> None:
        data = rc.load_data("circle", n=6, progress=False)
        with pytest.raises(InputError, match=r"0\.1 GiB are free; make it smaller, or insist with anyway=True"):
            rc.train(data, widths=20, epochs=2, progress=False)
        model = rc.train(data, widths=20, epochs=2, progress=False, anyway=True)
        with pytest.raises(InputError, match="anyway=True"):
            rc.reconstruct(model, m=4, iterations=2, progress=False)
        found = rc.reconstruct(model, m=4, iterations=2, progress=False, anyway=True)
        with pytest.raises(InputError, match="anyway=True"):
            rc.match(found, data)
        assert rc.match(found, data, anyway=True).data.n == 6

    @pytest.mark.parametrize("kept", [False, True])
    def test_by_an_audit_in_the_library(self, store: RunStore, kept: bool) -> None:
        data = rc.load_data("cifar10", n=4, progress=False)
        model = rc.train(data, widths=9, epochs=2, progress=False, anyway=True)
        asked: dict[str, Any] = {"m": 4, "iterations": 2, "progress": False, "store": store if kept else None}
        with pytest.raises(InputError, match=r"0\.1 GiB are free; make it smaller, or insist with anyway=True"):
            rc.audit(model, data, **asked)
        assert store.list("audit") == []
        assert rc.audit(model, data, anyway=True, **asked).report.leak.of == 4


def test_an_audit_takes_what_its_attack_and_its_images_take(store: RunStore) -> None:
    def config(n: int, m: int) -> AuditConfig:
        attached = attached_data("cifar10", 1, {"n": n})
        return AuditConfig(model="model-1", settings=AttackSettings(recipe="fast", m=m), attached=attached)

    network = Architecture((3, 32, 32), (10,), 1)
    small, many, large = (audit_memory(network, config(*size)) for size in ((50, 100), (2000, 100), (50, 100_000)))
    assert small is not None
    assert many is not None
    assert large is not None
    assert small < many < large
    attack = attack_memory(network, AttackSettings(recipe="fast", m=100_000))
    assert attack is not None
    assert large >= attack > small


def test_what_nobody_can_know_is_not_refused(store: RunStore) -> None:
    assert memory.shortage(None) is None
    assert memory_of(store, "train", {"data": 7}) is None
    assert memory_of(store, "reconstruct", ReconstructConfig(model="not-there").model_dump(mode="json")) is None


def test_half_as_many_at_once(tmp_path: Path) -> None:
    executor = LocalExecutor([{}] * 4, tmp_path / "log")
    assert (executor.free(), executor.places()) == (4, 4)
    assert executor.reduce()
    assert (executor.free(), executor.places()) == (2, 2)
    assert executor.reduce()
    assert not executor.reduce()
    assert executor.places() == 1


class ShortOfMemory(InlineExecutor):
    """Whose first runs, so many of this kind, find too little memory."""

    def __init__(self, kind: str, times: int) -> None:
        super().__init__()
        self._kind, self._times = kind, times
        self.reduced = 0

    def places(self) -> int:
        return 1

    def reduce(self) -> bool:
        self.reduced += 1
        return True

    def wait(self, seconds: float) -> list[Ended]:
        run = self._waiting
        if run is None or run.kind != self._kind or not self._times:
            return super().wait(seconds)
        self._waiting = None
        self._times -= 1
        with contextlib.suppress(MemoryError), run.writer() as writer:
            writer.start(1)
            raise MemoryError
        return [Ended(run.id, None)]


class TestTriedAgain:
    """With fewer beside it; then the part is lost, and says why."""

    def study(self, store: RunStore, times: int) -> tuple[Run, ShortOfMemory]:
        plan = tiny_plan(points=[{"label": "none", "settings": FLOW}], references=[], untrained_control=False)
        run, executor = create_study(store, StudyConfig(plan=plan)), ShortOfMemory("train", times)
        do_study(run, executor)
        return run, executor

    def search(self, store: RunStore, folder: Path, times: int) -> tuple[Run, ShortOfMemory]:
        settings = {"trials": 1, "attack": {"recipe": "paper", "iterations": 2}}
        model = imported_model(store, folder)
        run = create_search(store, parse_config(SearchConfig, {"model": model.id, "settings": settings}))
        executor = ShortOfMemory("trial", times)
        with run.writer() as writer:
            perform_search(run, writer, StopFlag(), lambda *told: None, None, lambda *asked: executor)
        return run, executor

    def test_in_a_study(self, store: RunStore) -> None:
        run, executor = self.study(store, times=1)
        assert run.status().state is RunState.DONE
        assert executor.reduced == 1
        assert any("goes on with 1 at a time: there was not enough memory" in line for line in run.log_tail())

    def test_in_a_study_for_the_last_time(self, store: RunStore) -> None:
        run, executor = self.study(store, times=2)
        assert run.status().state is RunState.FAILED
        assert "incomplete" in run.status().message
        assert "not enough memory" in run.status().message
        assert executor.reduced == 2
        do_study(run)  # it can be resumed
        assert run.status().state is RunState.DONE

    def test_in_a_search(self, store: RunStore, tmp_path: Path) -> None:
        run, executor = self.search(store, tmp_path, times=1)
        assert run.status().state is RunState.DONE
        assert executor.reduced == 1

    def test_in_a_search_for_the_last_time(self, store: RunStore, tmp_path: Path) -> None:
        run, executor = self.search(store, tmp_path, times=3)
        assert run.status().state is RunState.FAILED
        assert "lost" in run.status().message
        assert "not enough memory" in run.status().message
        assert executor.reduced == 3
