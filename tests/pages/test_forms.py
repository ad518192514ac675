"""Settings as widgets, and runs as choices, on pages made for the test."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from recon_core.config import TrainConfig, parse_config
from recon_core.errors import InputError
from recon_core.presets import PRESETS
from recon_core.store import Run, RunState, RunStore
from ui.shared.forms import COLUMNS, field_paths, merged


def form_page(fields: list[str], base: dict, fill: dict | None = None) -> None:  # run as a file of its own
    import streamlit as st

    from recon_core.config import TrainConfig
    from ui.shared.forms import config_form, fill_form

    if st.session_state.pop("fill", True) and fill is not None:
        fill_form(TrainConfig, base, fill, prefix="x")
    st.session_state["given"] = config_form(TrainConfig, base, fields, prefix="x")


def draw(
    fields: list[str], base: dict[str, Any] | None = None, fill: dict[str, Any] | None = None, **query: str
) -> AppTest:
    app = AppTest.from_function(form_page, args=(fields, base or {}, fill), default_timeout=240)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def given(app: AppTest) -> dict[str, Any]:
    found = app.session_state["given"]
    assert isinstance(found, dict)
    return found


class TestConfigForm:
    def test_every_setting_has_a_widget_and_a_name(self) -> None:
        fields = field_paths(TrainConfig)
        assert {"data.n", "model.widths", "training.recipe", "device"} <= set(fields)
        app = draw(fields)
        assert {widget.key for widget in [*app.text_input, *app.selectbox]} == {f"x_{path}" for path in fields}
        assert app.text_input(key="x_data.per_class").label == "Training samples per class"
        assert len(app.columns) == -(-len(fields) // COLUMNS) * COLUMNS

    def test_an_empty_form_asks_for_nothing_and_shows_what_is_usual(self) -> None:
        app = draw(["data.n", "data.task", "data.per_class", "training.max_change"], {"data": {"n": 70}})
        assert given(app) == {}
        assert app.text_input(key="x_data.n").placeholder == "70"
        assert app.text_input(key="x_data.per_class").placeholder == "none"
        assert app.text_input(key="x_training.max_change").placeholder == "0.1"
        assert app.selectbox(key="x_data.task").options == ["binary", "multiclass", "regression"]

    def test_what_is_filled_in_comes_back_nested_and_unchecked(self) -> None:
        app = draw(["data.n", "data.task", "device"])
        app.text_input(key="x_data.n").set_value(" many ")
        app.selectbox(key="x_data.task").set_value("regression")
        app.selectbox(key="x_device").set_value("cpu")
        app.run()
        assert given(app) == {"data": {"n": "many", "task": "regression"}, "device": "cpu"}

    def test_none_takes_back_what_the_preset_sets_but_is_a_choice_where_it_is_listed(self) -> None:
        app = draw(["data.n", "model.bias"], {"data": {"n": 70}})
        app.text_input(key="x_data.n").set_value("None")
        app.selectbox(key="x_model.bias").set_value("none")
        app.run()
        assert given(app) == {"data": {"n": None}, "model": {"bias": "none"}}

    def test_settings_come_from_the_address_and_bad_ones_are_ignored(self) -> None:
        app = draw(["data.n", "data.task"], **{"x_data.n": "12", "x_data.task": "dance"})
        assert given(app) == {"data": {"n": "12"}}


class TestFillForm:
    @pytest.mark.parametrize("preset", ["cifar10-50-decay", "cifar10-multiclass", "cifar10-conv", "circle"])
    def test_a_filled_form_asks_for_the_same(self, preset: str) -> None:
        """Whatever the form starts from: here 50 images, a stop by the log loss, no convolution."""
        base = PRESETS["cifar10-50"].config().model_dump(mode="json")
        wanted = PRESETS[preset].config()
        app = draw(field_paths(TrainConfig), base, wanted.model_dump(mode="json"))
        assert parse_config(TrainConfig, merged(base, given(app))) == wanted

    def test_only_differences_are_filled_in(self) -> None:
        base = PRESETS["circle"].config().model_dump(mode="json")
        app = draw(["data.n", "data.source", "model.widths"], base, merged(base, {"model": {"widths": [5, 4]}}))
        assert given(app) == {"model": {"widths": "5,4"}}

    def test_what_stood_there_before_is_emptied(self) -> None:
        base = PRESETS["circle"].config().model_dump(mode="json")
        app = draw(["data.n", "data.task"], base, base)
        app.text_input(key="x_data.n").set_value("12")
        app.selectbox(key="x_data.task").set_value("regression")
        app.session_state["fill"] = False
        app.run()
        assert given(app) == {"data": {"n": "12", "task": "regression"}}
        app.session_state["fill"] = True
        app.run()
        assert given(app) == {}


def test_merged_lays_groups_over_groups_and_changes_neither() -> None:
    base, over = {"data": {"n": 1, "seed": 2}, "device": "cpu"}, {"data": {"n": 3}, "model": {"widths": [1]}}
    assert merged(base, over) == {"data": {"n": 3, "seed": 2}, "device": "cpu", "model": {"widths": [1]}}
    assert base == {"data": {"n": 1, "seed": 2}, "device": "cpu"}
    merged(base, {})["data"]["n"] = 9
    assert base["data"]["n"] == 1


def pick_page() -> None:
    import streamlit as st

    from ui.shared.pick import pick_run, pick_runs

    one = pick_run("One", kinds=("train",), key="p_one")
    several = pick_runs("Several", kinds=("train", "model"), key="p_several", max_selections=3)
    st.session_state["picked"] = (one and one.id, [run.id for run in several])


def pick(**query: Any) -> AppTest:
    app = AppTest.from_function(pick_page, default_timeout=240)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def finished(store: RunStore, kind: str, name: str | None = None) -> Run:
    run = store.create(kind, {}, name=name)
    with run.writer() as writer:
        writer.start(1)
        writer.finish(RunState.DONE, {})
    return run


class TestPick:
    def test_empty_store_has_nothing_to_choose(self, store: RunStore) -> None:
        app = pick()
        assert app.session_state["picked"] == (None, [])
        assert not app.selectbox

    def test_only_done_runs_of_the_kind_the_newest_first(self, store: RunStore) -> None:
        finished(store, "train", "old")
        new = finished(store, "train", "new")
        finished(store, "model")
        store.create("train", {}, name="waiting")
        app = pick()
        assert app.session_state["picked"] == (new.id, [])
        assert app.selectbox(key="p_one").options == ["new", "old"]
        assert len(app.multiselect(key="p_several").options) == 3
        assert "Imported model" in app.multiselect(key="p_several").options
        assert app.query_params["p_one"] == new.id

    def test_a_choice_in_the_address_is_restored_in_order(self, store: RunStore) -> None:
        runs = {name: finished(store, "train", name) for name in ("a", "b", "c")}
        app = pick(p_one=runs["a"].id, p_several=[runs["c"].id, runs["a"].id])
        assert app.session_state["picked"] == (runs["a"].id, [runs["c"].id, runs["a"].id])
        # Version 0.1 wrote names into the address, with the id behind them.
        app = pick(p_one=f"a · {runs['a'].id}", p_several=[f"c · {runs['c'].id}", runs["a"].id])
        assert app.session_state["picked"] == (runs["a"].id, [runs["c"].id, runs["a"].id])

    def test_a_link_outlives_a_new_name(self, store: RunStore) -> None:
        old, _ = finished(store, "train", "old"), finished(store, "train", "new")
        store.rename(old.id, "another name")
        app = pick(p_one=old.id)
        assert app.session_state["picked"][0] == old.id
        assert app.query_params["p_one"] == old.id

    def test_a_run_that_is_gone_leaves_the_newest(self, store: RunStore) -> None:
        kept, gone = finished(store, "train", "kept"), finished(store, "train", "gone")
        store.delete(gone.id)
        app = pick(p_one=gone.id)
        assert app.session_state["picked"][0] == kept.id
        [warning] = app.warning
        assert "is not in this store any more" in warning.value


def test_bad_text_becomes_a_sentence_by_the_engine() -> None:
    with pytest.raises(InputError, match="'many'"):
        parse_config(TrainConfig, {"data": {"n": "many"}, "training": {"epochs": 5}})
