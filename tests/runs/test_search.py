"""Searches: the same trials whether stopped, killed or neither; the residual as judge; everything pooled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon_core.attacks import SEARCH_RANGES, AttackSettings
from recon_core.config import parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform, perform_in
from recon_core.observing import Listener, ignore
from recon_core.runs import StopFlag, observer
from recon_core.scheduling import Ended, Executor, Places
from recon_core.scheduling.inline import InlineExecutor
from recon_core.store import Run, RunState, RunStore, lock
from recon_core.store.nested import trial_store
from recon_core.studies.search import check_storage, perform_search
from recon_core.studies.trials import Sampler, SearchSettings
from tests.gates import Gate, Gates
from tests.processes import worker_of
from tests.small_models import imported_model

ATTACK = {"recipe": "paper", "m": 4, "iterations": 32, "engine": "closed", "dtype": "float32", "measure_every": 2,
          "snapshots": 2, "device": "cpu"}  # fmt: skip


@pytest.fixture
def model(store: RunStore, tmp_path: Path) -> Run:
    return imported_model(store, tmp_path)


def asked(
    store: RunStore,
    model: Run,
    *,
    attack: dict[str, Any] | None = None,
    places: dict[str, Any] | None = None,
    **settings: Any,
) -> Run:
    chosen = parse_config(SearchSettings, {"trials": 5, **settings, "attack": {**ATTACK, **(attack or {})}})
    config = {"model": model.id, "settings": chosen.model_dump(mode="json"), "known_init": False, **(places or {})}
    return store.create("search", config, parents=[model.id])


def trials(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.read_json("trials")]


@pytest.mark.parametrize("sampler", list(Sampler))
def test_search_pools_all_trials(store: RunStore, model: Run, sampler: Sampler) -> None:
    run = asked(store, model, sampler=sampler, trials=13)
    assert perform(run, StopFlag()) is RunState.DONE
    table, result = trials(run), run.result() or {}
    assert [row["number"] for row in table] == list(range(13))
    for row in table:
        for name, span in SEARCH_RANGES["haim2022"].items():
            assert span.low <= row["params"][name] <= span.high
    complete = [row for row in table if row["state"] == "complete"]
    assert result["best"]["value"] == min(row["value"] for row in complete)
    pooled = run.tensors("candidates")
    assert pooled["candidates"].shape == (4 * len(complete), 1, 8, 8)
    order = sorted(complete, key=lambda row: row["value"])
    assert pooled["trials"].tolist() == [row["number"] for row in order for _ in range(4)]
    assert pooled["seeds"].equal(pooled["trials"])  # every trial starts from its own number
    assert (result["pruned"] > 0) == (sampler is Sampler.HALVING)
    assert len(run.metrics()) == 13
    assert not (run.dir / "checkpoints").exists()
    assert store.check() == []


def test_trial_is_the_attack_its_numbers_say(store: RunStore, model: Run) -> None:
    run = asked(store, model, trials=2, sampler="random", ranges="buzaglo2023")
    perform(run, StopFlag())
    row = trials(run)[1]
    assert row["params"]["x_init_scale"] <= 0.1
    settings = parse_config(AttackSettings, {**ATTACK, **row["params"], "seed": 1})
    config = {"model": model.id, "settings": settings.model_dump(mode="json")}
    alone = store.create("reconstruct", config, parents=[model.id])
    perform(alone, StopFlag())
    pooled = run.tensors("candidates")
    assert pooled["candidates"][pooled["trials"] == 1].equal(alone.tensors("candidates")["candidates"])
    assert row["value"] == (alone.result() or {})["residual"]


def test_tpe_learns_from_the_trials_before(store: RunStore, model: Run) -> None:
    drawn = {}
    for sampler in ("random", "tpe"):
        run = asked(store, model, sampler=sampler, trials=12, seed=7)
        perform(run, StopFlag())
        drawn[sampler] = [row["params"] for row in trials(run)]
    assert drawn["random"][:10] == drawn["tpe"][:10]  # it starts at random
    assert drawn["random"][11] != drawn["tpe"][11]


class Recording(InlineExecutor):
    """One place that says what was submitted to it; `claimed` places draw numbers as that many would."""

    def __init__(self, claimed: int = 1, before: Callable[[int, Run], None] = lambda index, run: None) -> None:
        super().__init__(perform_in)
        self.claimed, self.before, self.submitted = claimed, before, []

    def places(self) -> int:
        return self.claimed

    def submit(self, run: Run) -> None:
        self.before(len(self.submitted), run)
        self.submitted.append(run.id)
        super().submit(run)


def do_search(run: Run, executor: Executor, stop: Any = None, listener: Listener = ignore) -> RunState:
    with run.writer() as writer:
        perform_search(run, writer, stop or StopFlag(), listener, None, lambda *asked: executor)
    return run.status().state


@pytest.mark.parametrize("sampler", list(Sampler))
def test_stopped_search_goes_on_where_it_was(store: RunStore, model: Run, gates: Gates, sampler: Sampler) -> None:
    long = {"iterations": 100}
    whole = asked(store, model, sampler=sampler, trials=6, attack=long)
    do_search(whole, Recording())
    run = asked(store, model, sampler=sampler, trials=6, attack=long)
    ended: set[str] = set()

    def hold_the_third(index: int, trial: Run) -> None:
        if index == 2:
            gates.close("trial", step=2, words=(trial.id,))

    for count in (2, 4):
        # Not a `StopFlag`: the trial is to be told by the search, and not to leave its gate before.
        flag = SimpleNamespace(raised=False)

        def listen(fraction: float | None, message: str, flag=flag, count=count) -> None:
            flag.raised = message.startswith(f"{count} of 6 trials ended")

        executor = Recording(before=hold_the_third)
        assert do_search(run, executor, flag, listen) is RunState.CANCELLED
        gates.open_all()
        assert not ended & set(executor.submitted)
        found = {trial.id: trial.status for trial in trial_store(run).list("trial")}
        ended |= {trial_id for trial_id, status in found.items() if status.state is RunState.DONE}
        assert len(ended) == count
        assert found[executor.submitted[-1]].state is RunState.CANCELLED  # in the middle, with a checkpoint
    executor = Recording()
    assert do_search(run, executor) is RunState.DONE
    assert not ended & set(executor.submitted)
    assert trials(run) == trials(whole)
    for name, tensor in run.tensors("candidates").items():
        assert tensor.equal(whole.tensors("candidates")[name]), name


@pytest.mark.parametrize("sampler", ["tpe", "halving"])
def test_two_workers_make_the_same_trials_whoever_is_faster(store: RunStore, model: Run, sampler: str) -> None:
    """Numbers follow from the trials that had to be over, not from those that happened to be."""
    one_by_one = asked(store, model, sampler=sampler, trials=14)
    do_search(one_by_one, Recording(claimed=2))
    at_once = asked(store, model, sampler=sampler, trials=14, places={"workers": 2})
    assert perform(at_once, StopFlag()) is RunState.DONE
    assert trials(at_once) == trials(one_by_one)
    assert (at_once.result() or {})["workers"] == 2
    alone = asked(store, model, sampler=sampler, trials=14)
    do_search(alone, Recording())
    assert trials(alone) != trials(one_by_one)  # it knew one trial more each time


def test_a_search_shows_how_far_it_is_and_the_newest_picture(
    store: RunStore, model: Run, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_SMALL_SNAPSHOT_SECONDS", 0.0)  # each picture is kept
    run = asked(store, model, trials=3, attack={"iterations": 40, "measure_every": 10})
    each, held = 41, 20
    heard: list[tuple[float, str]] = []
    seen: list[int] = []
    shut: list[Gate] = []

    def hold(index: int, trial: Run) -> None:
        shut.append(gates.close("trial", step=held, words=(trial.id,)))

    def listen(fraction: float | None, message: str) -> None:
        heard.append((fraction or 0.0, message))
        if not run.has_tensors("snapshots"):
            return
        shown = int(run.tensors("snapshots")["steps"].max())
        if shown == len(seen) * each + held:  # of the trial that is held now
            seen.append(shown)
            shut[-1].open()

    do_search(run, Recording(before=hold), listener=listen)
    fractions = [fraction for fraction, _ in heard]
    assert fractions == sorted(fractions)
    assert heard[0][1] == "0 of 3 trials ended"
    assert heard[-1][1] == f"3 of 3 trials ended, best {run.result()['best']['value']:.4f}"
    assert seen == [20, 61, 102]
    assert {step / (3 * each) for step in seen} < set(fractions)
    assert run.status().step == run.status().total == 3 * each


def test_searches_that_share_a_database_share_the_trials(
    store: RunStore, model: Run, tmp_path: Path, gates: Gates
) -> None:
    """Two processes, one SQLite file: no number is drawn twice, and each keeps the candidates of its own trials."""
    places = {"storage": f"sqlite:///{tmp_path / 'trials.db'}", "share": "both"}
    attack = {"iterations": 100, "measure_every": 50}
    runs = [asked(store, model, trials=8, sampler="tpe", attack=attack, places=places) for _ in range(2)]
    gate = gates.close("trial")
    with worker_of(runs[0]) as one, worker_of(runs[1]) as other:
        assert len({arrival.pid for arrival in gate.wait(2)}) == 2  # each has a trial in hand
        gate.open()
        assert [process.wait(120) for process in (one, other)] == [0, 0]
    mine = [set(run.tensors("candidates")["trials"].tolist()) for run in runs]
    assert not mine[0] & mine[1]
    assert all(mine)
    # Whoever ended first did not wait for the other's last trials.
    last = max(runs, key=lambda run: sum(row["state"] != "running" for row in trials(run)))
    assert {row["number"] for row in trials(last)} == set(range(8))
    assert mine[0] | mine[1] == {row["number"] for row in trials(last) if row["state"] == "complete"}


@pytest.mark.parametrize(
    ("storage", "share", "sentence"),
    [
        ("trials.db", None, "is no address of a database"),
        ("postgresql://me:secret@host/db", None, "leave it out"),
        ("cobol://host/db", None, "cobol"),
        ("oracle://me@host/db", None, "needs the package 'oracledb', which is not installed"),
        ("oracle://me:secret@host/db", None, "leave it out"),
        (None, "both", "name one by --storage"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_at_once(
    storage: str | None, share: str | None, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        check_storage(storage, share)
    assert "secret" not in str(refused.value)


def test_a_trial_that_cannot_be_made_is_told_and_the_rest_is_pooled(store: RunStore, model: Run) -> None:
    class Clumsy(Recording):
        """Breaks what its second run needs."""

        def submit(self, run: Run) -> None:
            if len(self.submitted) == 1:
                (run.dir / "config.json").write_text("{}")
            super().submit(run)

    run = asked(store, model, trials=3, sampler="random")
    assert do_search(run, Clumsy()) is RunState.DONE
    assert [row["state"] for row in trials(run)] == ["complete", "failed", "complete"]
    assert any("trial 2:" in line for line in run.log_tail())
    assert set(run.tensors("candidates")["trials"].tolist()) == {0, 2}


class Elsewhere:
    """An executor whose runs come back as `end` leaves them."""

    def __init__(self, end: Callable[[Run], str | None]) -> None:
        self._end, self._waiting = end, list[Run]()

    def free(self) -> int:
        return int(not self._waiting)

    def places(self) -> int:
        return 1

    def submit(self, run: Run) -> None:
        self._waiting.append(run)

    def wait(self, seconds: float) -> list[Ended]:
        return [Ended(run.id, self._end(run)) for run in [self._waiting.pop()]]

    def close(self) -> None:
        pass


FULL = "the disk is full: x could not be written; free some space, then resume or try again"


def fails_on_a_full_disk(run: Run) -> str | None:
    with run.writer() as writer:
        writer.start(1)
        writer.finish(RunState.FAILED, None, FULL)
    return None


def cannot_begin(run: Run) -> str | None:
    return "its process on node-7 ended with code 1: No module named 'torch'"


@pytest.mark.parametrize(
    ("end", "sentence"), [(fails_on_a_full_disk, FULL), (cannot_begin, "could not be started, 3 times: .*node-7")]
)
def test_what_is_no_fault_of_a_trial_ends_the_search_and_not_the_trial(
    store: RunStore, model: Run, end: Callable[[Run], str | None], sentence: str
) -> None:
    run, undisturbed = (asked(store, model, trials=3) for _ in range(2))
    with pytest.raises(AfterimageError, match=sentence):
        do_search(run, Elsewhere(end))
    assert run.status().state is RunState.FAILED
    assert do_search(run, InlineExecutor(perform_in)) is RunState.DONE  # once that is mended
    do_search(undisturbed, InlineExecutor(perform_in))
    assert trials(run) == trials(undisturbed)
    assert store.check() == []


def test_a_trial_whose_last_worker_has_not_stopped_yet_is_waited_for(store: RunStore, model: Run) -> None:
    """After `kill -9` of a search its workers finish a step first."""
    held: list[int] = []
    tries = 0

    def busy_at_first(run: Run) -> str | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            held.append(lock.acquire(run.dir / "lock") or 0)
        elif tries == 5:
            os.close(held.pop())
        elif tries > 5:
            perform(run, StopFlag())
            return None
        return f"run {run.id} is already running"

    run = asked(store, model, trials=1)
    assert do_search(run, Elsewhere(busy_at_first)) is RunState.DONE
    assert [row["state"] for row in trials(run)] == ["complete"]


def test_a_search_on_a_cluster_has_all_of_it(store: RunStore, model: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as many places as this process has threads."""
    wishes: list[int | None] = []

    def taken(run: Run, places: Places, *, inline: object = None) -> InlineExecutor:
        wishes.append(places.workers)
        return InlineExecutor(perform_in)

    monkeypatch.setattr("recon_core.studies.search.executor_for", taken)
    for places in ({}, {"cluster": "auto"}, {"cluster": "auto", "workers": 7}):
        perform(asked(store, model, trials=1, places=places), StopFlag())
    assert wishes == [1, None, 7]


def test_only_the_same_search_shares_trials(store: RunStore, model: Run, tmp_path: Path) -> None:
    places = {"storage": f"sqlite:///{tmp_path / 'trials.db'}", "share": "both"}
    assert do_search(asked(store, model, trials=2, places=places), InlineExecutor(perform_in)) is RunState.DONE
    other = asked(store, model, trials=4, places=places, attack={"m": 6})
    with pytest.raises(InputError, match="share 'both' attack another model, or with other settings"):
        do_search(other, InlineExecutor(perform_in))
    assert (
        do_search(asked(store, model, trials=4, places=places), InlineExecutor(perform_in)) is RunState.DONE
    )  # more of the same


def test_diverged_trials_are_told_but_not_pooled(store: RunStore, model: Run) -> None:
    run = asked(store, model, trials=3, attack={"lr_lam": 1e12, "weight_floor": 1e6})
    assert perform(run, StopFlag()) is RunState.FAILED
    assert {row["state"] for row in trials(run)} == {"diverged"}
    assert {row["value"] for row in trials(run)} == {None}
    assert "none of 3 trials" in run.status().message


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"trials": 0}, "trials must be greater than or equal to 1, got 0"),
        ({"sampler": "grid"}, "sampler must be 'random', 'tpe' or 'halving', got 'grid'"),
        ({"ranges": "mine"}, "ranges must be 'haim2022' or 'buzaglo2023', got 'mine'"),
        ({"attack": {"m": 0}}, "attack.m must be greater"),
        ({"trails": 3}, "unknown key 'trails'"),
    ],
)
def test_what_does_not_fit_is_said(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_config(SearchSettings, values)


def test_a_search_that_lost_a_trial_has_failed_says_which_and_goes_on(store: RunStore, model: Run) -> None:
    run, whole = (asked(store, model, trials=3, sampler=Sampler.RANDOM) for _ in range(2))
    victims: set[Path] = set()

    def killed_once_chosen(folder: Path, stop: StopFlag) -> str | None:
        """The first trial that begins never gets anywhere."""
        victims.add(folder if not victims else next(iter(victims)))
        if folder not in victims:
            return perform_in(folder, stop)
        with Run(folder).writer() as writer:
            writer.start(10)
        return "its process was killed (signal 9)"

    with run.writer() as writer:
        executor = InlineExecutor(killed_once_chosen)
        perform_search(run, writer, StopFlag(), lambda *told: None, None, lambda *wanted: executor)
    status = run.status()
    assert status.state is RunState.FAILED
    assert "incomplete, 2 of 3 trials ended; lost: trial 1 (given up after" in status.message
    assert "its process was killed (signal 9)" in status.message
    assert f"runs resume {run.id}" in status.message
    assert perform(run, StopFlag()) is RunState.DONE
    perform(whole, StopFlag())
    assert run.tensors("candidates")["candidates"].equal(whole.tensors("candidates")["candidates"])


def test_killed_search_does_not_repeat_what_ended(store: RunStore, model: Run, gates: Gates) -> None:
    """A process killed in the middle of a trial, its journal torn; the next one goes on."""
    long = {"iterations": 200, "measure_every": 50}
    whole = asked(store, model, trials=4, attack=long)
    run = asked(store, model, trials=4, attack=long)
    first_is_over = gates.close("search", step=201)
    with worker_of(run) as process:
        first_is_over.wait()
        in_the_middle = gates.close("trial", step=50)  # of the second, or of the third if that is over too
        first_is_over.open()
        in_the_middle.wait()
        process.kill()
    in_the_middle.open()
    assert run.status().state is RunState.INTERRUPTED
    ended = len(run.metrics())
    assert 1 <= ended < 4
    with open(run.dir / "checkpoints" / "trials.journal", "ab") as journal:
        journal.write(b'{"op_code": 4, "tri')
    heard: list[str] = []
    assert perform(run, StopFlag(), lambda fraction, message: heard.append(message)) is RunState.DONE
    assert heard[0].startswith(f"{ended} of 4 trials ended")
    perform(whole, StopFlag())
    assert [row["params"] for row in trials(run)] == [row["params"] for row in trials(whole)]
    assert run.tensors("candidates")["candidates"].equal(whole.tensors("candidates")["candidates"])
