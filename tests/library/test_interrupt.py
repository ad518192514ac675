"""Ctrl-C gives what was found so far; a second one is an interrupt like any other."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch

import recon_core as rc
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.store import RunState, RunStore
from tests.library.conftest import Experiment

ENDLESS = 10**7


def press(times: int = 1):
    """A listener that presses Ctrl-C at the first report of progress."""
    left = [times]

    def listen(fraction: float | None, message: str) -> None:
        while fraction and left[0]:
            left[0] -= 1
            os.kill(os.getpid(), signal.SIGINT)

    return listen


@pytest.fixture(autouse=True)
def handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def test_training_stops_and_the_network_is_there(experiment: Experiment) -> None:
    model = rc.train(experiment.data, recipe="paper", widths=20, epochs=ENDLESS, progress=press())
    assert model.stopped
    assert 0 < model.summary["steps"] < ENDLESS
    assert "interrupted after" in repr(model)
    found = rc.reconstruct(model, m=8, iterations=3, progress=False)
    assert not found.stopped


def test_an_attack_stops_and_its_candidates_can_be_matched(experiment: Experiment) -> None:
    found = rc.reconstruct(experiment.model, m=16, iterations=ENDLESS, measure_every=5, progress=press())
    assert found.stopped
    assert "interrupted after" in found.note
    assert 0 <= rc.match(found, experiment.data).good(0.4) <= 8


def test_a_second_one_interrupts_at_once(experiment: Experiment) -> None:
    with pytest.raises(KeyboardInterrupt):
        rc.train(experiment.data, recipe="paper", widths=20, epochs=ENDLESS, progress=press(2))


def test_a_training_in_a_store_can_be_resumed(store: RunStore, experiment: Experiment) -> None:
    settings = {"recipe": "paper", "widths": 20, "epochs": 60, "measure_every": 10, "store": store}
    model = rc.train(experiment.data, **settings, progress=press())
    assert model.stopped
    assert model.run is not None
    assert model.run.status().state is RunState.CANCELLED
    assert model.run.id in model.note
    assert model.summary["steps"] < 60
    with pytest.raises(rc.errors.InputError, match="resume"):
        rc.reconstruct(model, m=8, iterations=3, progress=False, store=store)
    perform(model.run, StopFlag())
    whole = rc.train(experiment.data, **{**settings, "store": None}, progress=False)
    resumed = model.run.tensors("weights")
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.network.state_dict().items())


def test_an_attack_in_a_store_can_be_resumed(store: RunStore, experiment: Experiment) -> None:
    settings = {"recipe": "fast", "m": 16, "iterations": 60, "measure_every": 5}
    found = rc.reconstruct(experiment.model, **settings, store=store, progress=press())
    assert found.stopped
    assert found.run is not None
    assert found.run.id in found.note
    assert not torch.equal(found.candidates, experiment.found.candidates)
    assert perform(found.run, StopFlag()) is RunState.DONE
    assert torch.equal(found.run.tensors("candidates")["candidates"], experiment.found.candidates)


def test_a_thread_has_no_signals_and_works_all_the_same(experiment: Experiment) -> None:
    made: list[rc.TrainedModel] = []
    thread = threading.Thread(
        target=lambda: made.append(rc.train(experiment.data, widths=10, epochs=3, progress=False))
    )
    thread.start()
    thread.join()
    assert not made[0].stopped
