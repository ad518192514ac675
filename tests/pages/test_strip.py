"""The strip in the sidebar: what runs and waits, with stop and move up, on every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.scheduling import queue
from recon_core.store import RunState, RunStore
from ui.shared.pages import PAGES, Page
from ui.shared.store import forget

PROJECT = Path(__file__).resolve().parents[2]
TRAIN = {"data": {"source": "circle", "n": 6}, "training": {"recipe": "flow", "target_loss": 1e-3}}


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hands out tickets."""
    monkeypatch.setenv("AFTERIMAGE_SLOTS", "1")
    monkeypatch.setattr(queue, "ensure_scheduler", lambda root: None)


def visit(page: Page) -> AppTest:
    forget()
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=240)
    if page is not PAGES[0]:
        app.switch_page(page.file)
    app.run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    found = [element.value for element in [*app.sidebar.markdown, *app.sidebar.caption, *app.sidebar.get("page_link")]]
    return "\n".join(found).replace("\\", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_every_page_says_what_waits_and_why(store: RunStore, page: Page) -> None:
    queue.submit(store.create("train", TRAIN))
    assert "1 waiting" in words(visit(page))
    assert "Circle, 6 points" in words(visit(page))
    assert "waits for a free slot; one run at a time here · for" in words(visit(page))


def test_an_empty_queue_is_said_in_three_words(store: RunStore) -> None:
    assert words(visit(PAGES[0])) == "Nothing is running."


def test_moved_up_it_is_next_and_taken_out_it_is_cancelled(store: RunStore) -> None:
    first, second = store.create("train", TRAIN, name="first"), store.create("train", TRAIN, name="second")
    queue.submit(first)
    queue.submit(second)
    app = visit(PAGES[0])
    assert app.sidebar.button(key=f"strip-up-{first.id}").disabled
    app.sidebar.button(key=f"strip-up-{second.id}").click().run()
    assert queue.waiting(store) == [second.id, first.id]
    app.sidebar.button(key=f"strip-stop-{first.id}").click().run()
    assert not app.exception
    assert first.status().state is RunState.CANCELLED
    assert "1 waiting" in words(app)


def test_a_training_shows_its_loss_and_no_bar_an_attack_its_steps(store: RunStore) -> None:
    train = store.create("train", TRAIN)
    attack = store.create("reconstruct", {"settings": {"recipe": "fast"}}, parents=[train.id])
    with train.writer() as writer:
        writer.start(None)
        writer.metrics({"step": 10, "log_loss": -2.302585, "seconds": 1.0})
        writer.progress(10, force=True)
        app = visit(PAGES[0])
        assert "log10 loss -1.0 on its way to -3.0" in words(app)
        assert not app.sidebar.get("progress")
        with attack.writer() as other:
            other.start(200)
            other.progress(50, force=True)
            [bar] = visit(PAGES[0]).sidebar.get("progress")
            assert bar.proto.value == 25
            assert "left" not in bar.proto.text  # nobody knows: it is the first of its size
            other.finish(RunState.DONE, {})
        app = visit(PAGES[0])
        app.sidebar.button(key=f"strip-stop-{train.id}").click().run()
        assert train.cancel_requested()
        writer.finish(RunState.CANCELLED, None)
