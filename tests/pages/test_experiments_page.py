"""The Experiments page: cards, search and filters, tags and notes, compare, export, delete."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.kinds import perform
from recon_core.runs.match_request import create_match
from recon_core.runs.match_source import MatchConfig
from recon_core.runs.signals import StopFlag
from recon_core.store import Notes, Run, RunState, RunStore
from recon_core.views.experiments import differences, experiments
from tests.pages.page_texts import mosaics, texts
from tests.runs.match_runs import MNIST, leaking_run, train_run
from ui.experiments.cached import all_experiments, exported_experiment
from ui.shared.pages import EXPERIMENTS
from ui.shared.store import forget

PROJECT = Path(__file__).resolve().parents[2]
DECAYED = {**MNIST, "training": {"epochs": 1, "weight_decay": 1e-3, "recipe": "paper"}}


def visit(**query: Any) -> AppTest:
    forget()
    all_experiments.clear()
    app = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=240)
    app.switch_page(EXPERIMENTS.file)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def cards(app: AppTest) -> list[str]:
    keys = [button.key or "" for button in app.main.button]
    return [key.removeprefix("open-") for key in keys if key.startswith("open-")]


@pytest.fixture
def counted(store: RunStore) -> Run:
    """A network whose matching found four of its six images."""
    model = train_run(store, MNIST)
    attack = leaking_run(store, model)
    match = create_match(store, MatchConfig(runs=(attack.id,)))
    assert perform(match, StopFlag()) is RunState.DONE
    return model


def test_an_empty_store_shows_the_way_in() -> None:
    assert "There are no experiments yet" in texts(visit())


def test_runs_of_one_network_are_one_experiment_with_its_count(store: RunStore, counted: Run) -> None:
    other = train_run(store, DECAYED)
    found = {one.id: one for one in experiments(store, store.list())}
    assert set(found) == {counted.id, other.id}
    one = found[counted.id]
    assert (len(one.attacks), len(one.matchings), one.state) == (1, 1, "counted")
    assert one.count is not None
    assert (one.count.good, one.count.of) == (4, 6)
    assert one.count.chance < 4
    assert found[other.id].count is None
    assert found[other.id].decay_label == "1e-3"
    assert "decay 1e-3" in found[other.id].varied
    assert differences(store, list(found.values()))["training.weight_decay"] == ["0.001", "0"]


def test_a_card_has_name_pairs_count_chance_and_what_was_varied(store: RunStore, counted: Run) -> None:
    app = visit()
    assert cards(app) == [counted.id]
    assert "4 of 6 reconstructed · chance level" in texts(app).replace("*", "")
    assert re.search(r"chance level \d+; \d+ with the papers' 3x3 window \(chance level \d+\)", texts(app))
    assert "Varied: width 8" in texts(app)
    [match] = store.list("match")
    (pairs,) = mosaics(app)
    assert [tile["good"] for tile in pairs["tiles"]] == [True] * 4 + [False] * 2
    assert [pair["match"] for pair in pairs["pairs"]["pairs"]] == [
        f"from={match.id}&m_pair={tile['id']}" for tile in pairs["tiles"]
    ]


def test_search_filters_and_order(store: RunStore, counted: Run) -> None:
    other = train_run(store, DECAYED)
    model = store.create("model", {"path": "/some/where/theirs.pth"})
    with model.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {})
    store.annotate(counted.id, Notes(("lecture",), "for Monday"))
    assert cards(visit()) == [model.id, other.id, counted.id]
    assert cards(visit(e_sort="by count"))[0] == counted.id
    assert cards(visit(e_search="decay 1e-3")) == [other.id]
    assert cards(visit(e_search="monday")) == [counted.id]
    assert cards(visit(e_data="imported model")) == [model.id]
    assert cards(visit(e_decay="1e-3")) == [other.id]
    assert cards(visit(e_state="counted")) == [counted.id]
    assert cards(visit(e_tag="lecture")) == [counted.id]
    app = visit()
    app.multiselect(key="e_decay").set_value(["1e-3"]).run()
    assert cards(app) == [other.id]
    assert app.query_params["e_decay"] == "1e-3"


def test_selected_ones_stand_side_by_side_with_what_differs(store: RunStore, counted: Run) -> None:
    other = train_run(store, DECAYED)
    app = visit(e_cmp=[counted.id, other.id])
    [table] = [element.value for element in app.main.dataframe]
    assert list(table["reconstructed"]) == ["4 of 6", "–"]
    assert list(table["training.weight_decay"]) == ["0", "0.001"]
    app.button(key="e_delete").click().run()
    assert not app.exception
    assert store.list() == []


def test_a_box_on_a_card_selects_it(store: RunStore, counted: Run) -> None:
    app = visit()
    app.checkbox(key=f"take-{counted.id}-False").check().run()
    assert app.multiselect(key="e_cmp").value == [counted.id]
    assert app.query_params["e_cmp"] == counted.id


def test_one_experiment_holds_its_runs_and_keeps_tags_and_notes(store: RunStore, counted: Run) -> None:
    app = visit(experiment=counted.id)
    assert [heading.value for heading in app.main.subheader] == ["Network", "Attacks", "Matchings", "Tags and notes"]
    assert len(app.main.get("page_link")) == 3
    app.text_area(key=f"e_note_{counted.id}").set_value("seen in class")
    app.multiselect(key=f"e_tags_{counted.id}").set_value([])
    app.run()
    app.button(key="e_save").click().run()
    assert not app.exception
    assert counted.notes == Notes((), "seen in class")
    assert counted.status().state is RunState.DONE


def test_a_link_to_a_deleted_experiment_says_so(store: RunStore, counted: Run) -> None:
    store.delete(counted.id, with_dependents=True)
    [error] = visit(experiment=counted.id).error
    assert "is not in the store any more" in error.value.replace("\\", "")


def test_an_exported_experiment_brings_everything_to_another_store(
    store: RunStore, counted: Run, tmp_path: Path
) -> None:
    store.annotate(counted.id, Notes(("kept",), ""))
    content = exported_experiment(counted.id)
    assert {name.split("/")[0] for name in zipfile.ZipFile(BytesIO(content)).namelist()} == {
        run.id for run in store.list()
    }
    (tmp_path / "taken.zip").write_bytes(content)
    elsewhere = RunStore(tmp_path / "elsewhere")
    elsewhere.import_zip(tmp_path / "taken.zip")
    [one] = experiments(elsewhere, elsewhere.list())
    assert one.count is not None
    assert one.count.good == 4
    assert one.notes.tags == ("kept",)
