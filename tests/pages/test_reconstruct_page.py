"""The Reconstruct page on real runs: a small network trained on ten images, attacks on it, and what goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

from recon_core.attacks import FastSettings
from recon_core.attacks.settings import Prior
from recon_core.config import parse_config
from recon_core.kinds import perform
from recon_core.models import Architecture, build_network
from recon_core.runs import StopFlag
from recon_core.runs.attack_request import attack_request, baseline_request
from recon_core.runs.models import model_of
from recon_core.runs.prior_runs import with_prior
from recon_core.runs.reconstruction import Baseline, ReconstructConfig, usual_candidates
from recon_core.store import Run, RunState, RunStore
from recon_core.studies.requests import create_requested, search_request
from tests.pages.page_texts import mosaics, run_links, texts
from ui.reconstruct.form import FORM, SEARCH_FIELDS, SEARCH_FORM, applies
from ui.shared.formatting import plain
from ui.shared.forms import field_paths
from ui.shared.store import forget, run_details

APP = str(Path(__file__).resolve().parents[2] / "app.py")
PAGE = "pages/2_Reconstruct.py"
TRAINING = {
    "data": {"source": "cifar10", "n": 10, "test_n": 10},
    "model": {"widths": [60, 50]},
    "training": {"recipe": "flow", "target_log_loss": -20.0},
}
QUICK = {"m": "24", "iterations": "60", "device": "cpu", "snapshots": "5"}


def attacked(store: RunStore, model: Run, **given: str) -> Run:
    """A small attack, in line."""
    return create_requested(
        store, model_of(model), attack_request(model, model_of(model), "fast", QUICK | given, False)
    )


def searched(store: RunStore, model: Run, trials: int) -> Run:
    given = {"m": "8", "iterations": "12", "device": "cpu"}
    asked = {"trials": str(trials), "sampler": "random"}
    return create_requested(
        store, model_of(model), search_request(model, model_of(model), "paper", given, asked, False)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one trained network, an attack on it, a search and a baseline, all done."""
    store = RunStore(tmp_path_factory.mktemp("made") / "runs")
    model = store.create("train", TRAINING, name="ten images")
    assert perform(model, StopFlag()) is RunState.DONE
    runs = [attacked(store, model), searched(store, model, 11)]
    runs.append(create_requested(store, model_of(model), baseline_request(model, model_of(model), Baseline.WEIGHTS)))
    for run in runs:
        assert perform(run, StopFlag()) is RunState.DONE
    return store.root


@pytest.fixture
def filled(made: Path, own_store: Path) -> RunStore:
    shutil.copytree(made, own_store)
    forget()
    return RunStore(own_store)


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """What was put in line, where nobody takes it; and no machine is timed."""
    runs: list[Run] = []
    monkeypatch.setattr("recon_core.scheduling.queue.submit", runs.append)
    monkeypatch.setattr("recon_core.scheduling.estimates.matmul_rate", lambda store: 30e9)
    for name in ("PATIENCE", "LIVE_PATIENCE"):
        monkeypatch.setattr(f"ui.reconstruct.cached.{name}", 60.0)  # to see every count, however slow the machine is
    return runs


def visit(**query: str) -> AppTest:
    forget()
    app = AppTest.from_file(APP, default_timeout=240)
    app.switch_page(PAGE)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def only(store: RunStore, kind: str, baseline: str | None = None) -> Run:
    runs = [store.open(summary.id) for summary in store.list(kind)]
    (run,) = [run for run in runs if kind == "train" or run.config.get("baseline") == baseline]
    return run


def charts(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


class TestEmptyStore:
    def test_says_where_models_come_from(self, own_store: Path) -> None:
        app = visit()
        assert "There is no model to attack yet" in texts(app)
        assert not [button for button in app.button if button.key == "r-begin"]
        assert not own_store.exists()


class TestForm:
    def test_start_needs_nothing_to_be_set(self, filled: RunStore, submitted: list[Run]) -> None:
        app = visit()
        m = usual_candidates(model_of(only(filled, "train")))
        assert "(hidden from the attack)" in texts(app)
        assert f"{m} candidates, recipe copies · about" in texts(app)
        app.button(key="r-begin").click().run()
        (run,) = submitted
        assert run.kind == "reconstruct"
        assert run.parents == (only(filled, "train").id,)
        settings = parse_config(ReconstructConfig, run.config).settings
        assert (settings.m, settings.recipe, settings.iterations) == (m, "copies", 2000)
        assert app.query_params["run"] == run.id
        assert "queued" in texts(app)

    def test_every_setting_is_there_and_reaches_the_run(self, filled: RunStore, submitted: list[Run]) -> None:
        app = visit()
        keys = {element.key for kind in ("text_input", "selectbox") for element in app.get(kind)}
        assert {f"{FORM}_{name}" for name in field_paths(FastSettings) if name != "recipe"} <= keys
        app.text_input(key="r_m").set_value("40")
        app.text_input(key="r_seeds").set_value("3")
        app.selectbox(key="r_dtype").set_value("float64")
        app.toggle(key="r_known").set_value(True)
        app.run()
        assert "3 seeds" in texts(app)
        app.button(key="r-begin").click().run()
        config = parse_config(ReconstructConfig, submitted[0].config)
        settings = config.settings
        assert (settings.m, settings.seeds, settings.dtype, config.known_init) == (40, 3, "float64", True)

    def test_the_authors_numbers_can_be_chosen(self, filled: RunStore, submitted: list[Run]) -> None:
        app = visit()
        app.selectbox(key="r_start").set_value("cifar10-b").run()
        assert app.text_input(key="r_alpha").placeholder == "21.7"
        assert "Attack fast" not in [tab.label for tab in app.tabs]
        app.button(key="r-begin").click().run()
        settings = parse_config(ReconstructConfig, submitted[0].config).settings
        assert (settings.recipe, settings.alpha, settings.lr_x) == ("paper", 21.7, 0.346)

    def test_a_search_is_one_choice_away(self, filled: RunStore, submitted: list[Run]) -> None:
        app = visit()
        app.segmented_control(key="r_kind").set_value("search").run()
        keys = {element.key for kind in ("text_input", "selectbox") for element in app.get(kind)}
        assert {f"{SEARCH_FORM}_{name}" for name in SEARCH_FIELDS} <= keys
        assert "r_lr_x" not in keys  # drawn by the search
        app.text_input(key="rs_trials").set_value("7").run()
        m = usual_candidates(model_of(only(filled, "train")))
        assert f"7 attacks with {m} candidates" in texts(app)
        app.text_input(key="rp_workers").set_value("3").run()
        app.text_input(key="rp_cluster").set_value("auto").run()
        app.button(key="r-begin").click().run()
        assert submitted[0].kind == "search"
        assert submitted[0].config["settings"]["trials"] == 7
        assert (submitted[0].config["workers"], submitted[0].config["cluster"]) == (3, "auto")
        cloned = visit(**{"from": submitted[0].id})
        assert (cloned.text_input(key="rp_workers").value, cloned.text_input(key="rp_cluster").value) == ("3", "auto")

    def test_settings_that_do_not_apply_are_not_shown(self) -> None:
        paper = {"prior": "squared", "floor": "squared", "labels": "half"}
        assert applies("box_low", paper, planar=False)
        assert not applies("box_low", {**paper, "prior": "off"}, planar=False)
        assert not applies("prior", paper, planar=True)
        assert applies("weight_floor", paper, planar=True)
        assert not applies("weight_floor", {**paper, "labels": "learnt"}, planar=True)

    def test_only_settings_of_the_chosen_attack_are_shown(self, filled: RunStore) -> None:
        app = visit()
        fast = {field.key for field in app.text_input}
        app.selectbox(key="r_start").set_value("paper").run()
        paper = {field.key for field in app.text_input}
        assert "r_pace" in fast - paper
        assert "r_momentum" in paper - fast

    @pytest.mark.parametrize(
        ("field", "value", "sentence"),
        [
            ("m", "101", "M must be even, half the candidates for each class, got 101"),
            ("alpha", "-3", "Alpha must be greater than 0, got '-3'"),
            ("iterations", "many", "Iterations must be a valid integer"),
        ],
    )
    def test_bad_numbers_are_a_sentence_and_nothing_is_lost(
        self, filled: RunStore, submitted: list[Run], field: str, value: str, sentence: str
    ) -> None:
        app = visit()
        app.text_input(key="r_seeds").set_value("2")
        app.text_input(key=f"r_{field}").set_value(value).run()
        (error,) = app.error
        assert error.value.startswith(plain(sentence))
        assert app.button(key="r-begin").disabled
        assert (app.text_input(key=f"r_{field}").value, app.text_input(key="r_seeds").value) == (value, "2")
        app.text_input(key=f"r_{field}").set_value("").run()
        assert not app.error
        assert not app.button(key="r-begin").disabled
        assert submitted == []

    def test_what_only_the_engine_can_refuse_is_said_on_start(self, filled: RunStore, submitted: list[Run]) -> None:
        app = visit()
        app.text_input(key="r_layer_weights").set_value("1,2").run()
        before = len(filled.list())
        app.button(key="r-begin").click().run()
        (error,) = app.error
        assert "layer" in error.value
        assert (len(filled.list()), submitted) == (before, [])
        assert app.text_input(key="r_layer_weights").value == "1,2"

    def test_a_regression_without_decay_is_warned_about(self, store: RunStore) -> None:
        training = {"recipe": "paper", "epochs": 3, "loss": "l2"}
        data = {"source": "mnist", "n": 4, "test_n": 4, "task": "regression"}
        run = store.create("train", {"data": data, "model": {"widths": [8]}, "training": training})
        assert perform(run, StopFlag()) is RunState.DONE
        (warning,) = visit().warning
        assert "nothing will be reconstructed" in warning.value


class TestTakingUpSettings:
    def test_clone_fills_the_form_and_the_address(self, filled: RunStore) -> None:
        model = only(filled, "train")
        create_requested(
            filled,
            model_of(model),
            attack_request(model, model_of(model), "mnist-a", {"m": "30", "seeds": "2"}, known_init=True),
        )
        source = next(run for run in filled.list("reconstruct") if run.status.state is RunState.QUEUED)
        app = visit(**{"from": source.id})
        assert "from" not in app.query_params
        assert app.query_params["r_m"] == "30"
        assert app.text_input(key="r_m").value == "30"
        assert app.text_input(key="r_seeds").value == "2"
        assert app.text_input(key="r_alpha").value == "150.0"
        assert app.selectbox(key="r_start").value == "paper"
        assert app.toggle(key="r_known").value is True

    def test_clone_of_a_search(self, filled: RunStore) -> None:
        app = visit(**{"from": only(filled, "search").id})
        assert app.segmented_control(key="r_kind").value == "search"
        assert app.text_input(key="rs_trials").value == "11"
        assert app.selectbox(key="rs_sampler").value == "random"
        assert app.text_input(key="r_m").value == "8"

    def test_model_of_an_address_is_chosen(self, filled: RunStore) -> None:
        first = only(filled, "train").id
        newer = filled.create("train", TRAINING)
        assert perform(newer, StopFlag()) is RunState.DONE
        assert visit().selectbox(key="r_model").value == newer.id
        assert visit(model=first).selectbox(key="r_model").value == first

    @pytest.mark.parametrize("key", ["from", "model"])
    @pytest.mark.parametrize("run_id", ["train-20260101-nobody", "../../etc", "<b>x</b>"])
    def test_addresses_that_lead_nowhere_are_a_sentence(self, filled: RunStore, key: str, run_id: str) -> None:
        app = visit(**{key: run_id})
        assert len(app.warning) == 1
        assert not app.button(key="r-begin").disabled


class TestFinishedRun:
    def test_shows_pictures_curves_count_and_chance_level(self, filled: RunStore) -> None:
        run = only(filled, "reconstruct")
        app = visit(run=run.id)
        assert [title.value for title in app.title] == [plain(run_details(run.id).name)]
        assert "Scored with the training data, which the attack never sees." in texts(app)
        figures = {metric.label: metric.value for metric in app.metric}
        residual = (run.result() or {})["residual"]
        assert figures["Weights explained"] == f"{1 - residual:.1%}"
        assert figures["Good reconstructions"].endswith(" of 10")
        assert "SSIM (Wang, 11x11 window) above 0.4 after merging candidates with B = 1.1" in texts(app)
        assert "Chance level: the mean image alone matches" in texts(app)
        assert "24 of 24 candidates as the run left them" in texts(app)
        assert "mean of the training images is not added" in texts(app)
        assert charts(app) == 2  # residuals and multipliers
        candidates, *_ = mosaics(app)
        assert len(mosaics(app)) == 3  # the candidates, and two for comparison
        # Each opens beside the training image it resembles most, whose number the link to Match holds.
        opened = candidates["pairs"]["pairs"]
        assert len(opened) == len(candidates["tiles"])
        assert all(pair["match"] == f"from={run.id}&m_pair={pair['image']}" for pair in opened)
        assert all(pair["facts"][0][0] == "SSIM of this candidate alone" for pair in opened)

    def test_the_way_there_can_be_looked_at(self, filled: RunStore) -> None:
        run = only(filled, "reconstruct")
        app = visit(run=run.id)
        slider = app.select_slider(key=f"r-moment-{run.id}")
        slider.set_value(1).run()
        steps = run.tensors("snapshots")["steps"].tolist()
        assert f"24 of 24 candidates at step {steps[1]:,}" in texts(app)

    def test_order_and_number_of_tiles(self, filled: RunStore) -> None:
        app = visit(run=only(filled, "reconstruct").id)
        for order in ("multiplier", "agreement"):
            app.segmented_control(key="r_order").set_value(order).run()
            assert not app.exception
        app.selectbox(key="r_shown").set_value(50).run()
        assert "24 of 24 candidates" in texts(app)

    def test_leads_to_match_and_back(self, filled: RunStore) -> None:
        run = only(filled, "reconstruct")
        app = visit(run=run.id)
        assert app.button(key=f"match-{run.id}").label == "Match with the training images"
        app.button(key="r-back").click().run()
        assert "run" not in app.query_params
        assert [title.value for title in app.title] == ["Reconstruct"]
        assert len(run_links(app)) == 3

    def test_a_baseline_is_one_click_away_and_like_the_attack(self, filled: RunStore, submitted: list[Run]) -> None:
        run = only(filled, "reconstruct")
        app = visit(run=run.id)
        assert not [button for button in app.button if button.key == "r-baseline-weights"]  # there already
        app.button(key="r-baseline-untrained").click().run()
        (untrained,) = submitted
        asked = parse_config(ReconstructConfig, untrained.config)
        assert asked.baseline is Baseline.UNTRAINED
        assert asked.settings == parse_config(ReconstructConfig, run.config).settings

    def test_priors_stand_side_by_side_and_the_missing_ones_are_one_click_away(
        self, filled: RunStore, submitted: list[Run]
    ) -> None:
        model = only(filled, "train")
        request = attack_request(model, model_of(model), "copies", QUICK, False)
        run = create_requested(filled, model_of(model), request)
        assert perform(run, StopFlag()) is RunState.DONE
        app = visit(run=run.id)
        assert "**Natural images** · this run" in texts(app)
        assert texts(app).count("Not run yet.") == 2
        app.button(key="r-priors-run").click().run()
        asked = {
            config.settings.prior: config for config in (parse_config(ReconstructConfig, r.config) for r in submitted)
        }
        assert set(asked) == {Prior.OFF, Prior.BOX}
        for prior, config in asked.items():
            assert config == with_prior(request, prior)
        for other in submitted:
            assert perform(other, StopFlag()) is RunState.DONE
        app = visit(run=run.id)
        assert "Not run yet." not in texts(app)
        assert not [button for button in app.button if button.key == "r-priors-run"]
        assert {button.key for button in app.button} >= {"r-open-prior-off", "r-open-prior-box"}
        # Another seed is another attack.
        other = create_requested(
            filled, model_of(model), attack_request(model, model_of(model), "copies", QUICK | {"seed": "1"}, False)
        )
        assert perform(other, StopFlag()) is RunState.DONE
        assert texts(visit(run=other.id)).count("Not run yet.") == 2

    def test_an_attack_without_a_choice_of_prior_has_none_beside_it(self, filled: RunStore) -> None:
        assert "What the prior does" not in texts(visit(run=only(filled, "reconstruct").id))

    def test_planar_runs_show_points_and_radii(self, store: RunStore) -> None:
        values = {
            "data": {"source": "circle", "n": 6},
            "model": {"widths": [30, 30], "init_scale": 0.1},
            "training": {"recipe": "flow", "target_loss": 1e-2},
        }
        model = store.create("train", values)
        assert perform(model, StopFlag()) is RunState.DONE
        run = attacked(store, model)
        assert perform(run, StopFlag()) is RunState.DONE
        app = visit(run=run.id)
        labels = [metric.label for metric in app.metric]
        assert {"Points within 0.1", "Points within 0.03"} <= set(labels)
        assert "held-out points" in texts(app)
        app.toggle(key="r_truth").set_value(False).run()
        assert not app.exception
        assert len(mosaics(app)) == 0

    def test_an_imported_model_has_no_evaluator(self, store: RunStore, tmp_path: Path) -> None:
        network = build_network(Architecture((1, 8, 8), (10, 6), 1), init_scale="kaiming", seed=1)
        torch.save(network.state_dict(), tmp_path / "theirs.pth")
        model = store.create("model", {"path": str(tmp_path / "theirs.pth"), "input_shape": None})
        perform(model, StopFlag())
        run = attacked(store, model)
        perform(run, StopFlag())
        app = visit(run=run.id)
        assert "are not known here, so reconstructions cannot be counted" in texts(app)
        assert not [metric for metric in app.metric if "good" in metric.label]
        assert not [button for button in app.button if (button.key or "").startswith("match-")]
        form = visit()
        assert "how it was trained is not known" in texts(form)
        assert form.toggle(key="r_known").disabled


class TestSearch:
    def test_shows_trials_best_importance_and_candidates(self, filled: RunStore) -> None:
        run = only(filled, "search")
        app = visit(run=run.id)
        figures = {metric.label: metric.value for metric in app.metric}
        assert figures["Trials ended"] == "11 of 11"
        best = (run.result() or {})["best"]
        assert f"The best is trial {best['number'] + 1}:" in texts(app)
        table = next(frame.value for frame in app.dataframe)
        assert table["trial"].tolist() == list(range(1, 12))
        assert {"residual", "state", "lr_x", "x_init_scale", "lam_min", "alpha"} <= set(table.columns)
        assert "Hyper-parameter importance" in texts(app)
        assert charts(app) == 4  # trials, importance, parallel coordinates, multipliers
        assert len(mosaics(app)) >= 1

    def test_few_trials_say_when_importance_will_be_known(self, filled: RunStore) -> None:
        run = searched(filled, only(filled, "train"), 2)
        perform(run, StopFlag())
        assert "Shown after 10 trials" in texts(visit(run=run.id))

    def test_one_that_waits_says_so(self, filled: RunStore) -> None:
        run = searched(filled, only(filled, "train"), 2)
        app = visit(run=run.id)
        assert "The first trial has not ended yet" in texts(app)


class TestTroubledRuns:
    def test_a_failed_run_says_why_and_offers_to_resume(self, filled: RunStore) -> None:
        run = attacked(filled, only(filled, "train"))
        with run.writer() as writer:
            writer.start(60)
            writer.log("something burned")
            writer.finish(RunState.FAILED, None, "diverged: try a smaller lr_x")
        app = visit(run=run.id)
        assert [error.value for error in app.error] == [plain("diverged: try a smaller lr_x")]
        assert any("something burned" in code.value for code in app.code)
        assert app.button(key=f"resume-{run.id}")

    def test_a_run_at_work_shows_its_newest_picture_and_counts_now_and_then(
        self, filled: RunStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ui.reconstruct.cached.COUNT_SECONDS", 1000.0)
        run = attacked(filled, only(filled, "train"))
        labels = torch.zeros(1, 24, dtype=torch.long)
        with run.writer() as writer:
            writer.start(60)
            for step in (20, 30):
                writer.metrics({"step": step, "seed": 0, "residual": 0.25, "residual_layer1": 0.2})
                pictures = {"candidates": torch.randn(1, 24, 3, 32, 32), "multipliers": torch.rand(1, 24)}
                writer.save_tensors("snapshots", {**pictures, "labels": labels, "steps": torch.tensor([step])})
                writer.progress(step, force=True)
                app = visit(run=run.id)
                figures = {metric.label: metric.value for metric in app.metric}
                assert figures["Weights explained"] == "75.0%"
                assert figures["Good reconstructions at step 20"] == "0 of 10"  # the first count serves for a while
                assert f"24 of 24 candidates at step {step}" in texts(app)
                assert app.button(key=f"cancel-{run.id}")
            writer.finish(RunState.FAILED, None, "enough")
        figures = {metric.label: metric.value for metric in visit(run=run.id).metric}
        assert figures["Good reconstructions at step 30"] == "0 of 10"  # the last word is never old

    def test_a_damaged_file_is_a_sentence(self, filled: RunStore) -> None:
        run = only(filled, "reconstruct")
        file = run.dir / "candidates.safetensors"
        file.chmod(0o644)
        file.write_bytes(b"torn")
        app = visit(run=run.id)
        assert any("damaged" in error.value for error in app.error)

    @pytest.mark.parametrize("run_id", ["reconstruct-20260101-nobody", "../../etc/passwd", "", "<b>x</b>", "\0"])
    def test_bad_address_gets_a_sentence_and_a_way_back(self, filled: RunStore, run_id: str) -> None:
        app = visit(run=run_id)
        (error,) = app.error
        assert "<b>" not in error.value
        assert app.button(key="r-back")

    def test_a_run_of_another_kind_is_opened_on_the_page_of_its_kind(self, filled: RunStore) -> None:
        app = visit(run=only(filled, "train").id)
        assert not app.error
        assert [title.value for title in app.title] == ["ten images"]
