"""The Audit page: a checkpoint uploaded, images attached, the verdict shown, and what goes wrong."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from streamlit.testing.v1 import AppTest

from recon_core.config import parse_config
from recon_core.kinds import perform
from recon_core.runs import StopFlag
from recon_core.runs.audit import AuditConfig
from recon_core.scheduling import memory
from recon_core.scheduling.memory import FreeMemory
from recon_core.store import Run, RunState, RunStore
from tests.foreign_training import Foreign, train_elsewhere
from tests.pages.page_texts import mosaics, texts
from ui.shared.store import forget

APP = str(Path(__file__).resolve().parents[2] / "app.py")
PAGE = "pages/6_Audit.py"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return train_elsewhere(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """What was put in line, where nobody takes it."""
    runs: list[Run] = []
    monkeypatch.setattr("recon_core.scheduling.queue.submit", runs.append)
    return runs


def visit(**query: str) -> AppTest:
    forget()
    app = AppTest.from_file(APP, default_timeout=240)
    app.switch_page(PAGE)
    app.query_params.update(query)
    app.run()
    assert not app.exception
    return app


def with_model(foreign: Foreign) -> AppTest:
    """The page, the checkpoint taken in."""
    app = visit()
    app.file_uploader(key="a_checkpoint").set_value(
        ("theirs.pth", foreign.file.read_bytes(), "application/octet-stream")
    )
    app.text_input(key="a_shape").set_value("1,12,12")
    app.run()
    app.button(key="a_import").click().run()
    assert not app.exception
    return app


def done(run: Run) -> Run:
    """The run, performed with fewer iterations than a person would wait for."""
    config = parse_config(AuditConfig, run.config)
    quick = config.settings.model_copy(update={"iterations": 30, "m": 16})
    with run.writer() as writer:
        writer.reconfigure(config.model_copy(update={"settings": quick}).model_dump(mode="json"))
        writer.requeue()
    assert perform(run, StopFlag()) is RunState.DONE
    return run


def test_empty_store_says_what_to_do(own_store: Path) -> None:
    app = visit()
    assert any("upload a checkpoint above" in info.value for info in app.info)
    assert not own_store.exists()


def test_uploaded_checkpoint_with_a_folder_becomes_a_report(foreign: Foreign, submitted: list[Run]) -> None:
    app = with_model(foreign)
    assert "Network 1x12x12-60-30-1" in texts(app)
    app.text_input(key="a_path").set_value(str(foreign.photos))
    app.text_input(key="a_held").set_value(str(foreign.others))
    app.run()
    app.button(key="a-begin").click().run()
    assert not app.exception
    (run,) = submitted
    assert app.query_params["run"] == run.id
    app = visit(run=done(run).id)
    result = run.result()
    assert result is not None
    shown = [element.value.replace("\\", "") for kind in (app.error, app.warning, app.info) for element in kind]
    assert result["verdict"]["sentence"] in shown
    assert next(metric.value for metric in app.metric) == f"{result['leak']['reconstructed']} of 8"
    assert "100% accuracy on its 8 images" in texts(app)
    assert len(app.get("download_button")) >= 2
    (pairs,) = mosaics(app)
    assert len(pairs["pairs"]["pairs"]) == len(pairs["tiles"]) == 8


def test_uploaded_images_are_kept_for_the_run(foreign: Foreign, own_store: Path, submitted: list[Run]) -> None:
    app = with_model(foreign)
    files = sorted(foreign.photos.glob("*/*.png"))
    content = io.BytesIO()
    images = np.stack([np.asarray(Image.open(file)) for file in files])
    np.savez(content, images=images, labels=np.array([int(file.parent.name == "dogs") for file in files]))
    app.radio(key="a_where").set_value("Upload .npz").run()
    app.file_uploader(key="a_npz").set_value(("photos.npz", content.getvalue(), "application/octet-stream"))
    app.run()
    app.button(key="a-begin").click().run()
    (run,) = submitted
    data = parse_config(AuditConfig, run.config).attached.data
    assert Path(str(data.path)).parent == own_store / ".arrays"
    assert (done(run).result() or {})["fit"]["accuracy"] == 1


def test_what_does_not_fit_into_memory_is_insisted_on(
    foreign: Foreign, submitted: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(0.1 * 2**30, "free"))
    app = with_model(foreign)
    app.text_input(key="a_path").set_value(str(foreign.photos)).run()
    assert any("GiB are free" in warning.value.replace("\\", "") for warning in app.warning)
    assert app.button(key="a-begin").disabled
    app.checkbox(key="a-begin-anyway").check().run()
    app.button(key="a-begin").click().run()
    assert len(submitted) == 1


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("", "No images are attached"), ("/nowhere/at/all", "There are no images '/nowhere/at/all'")],
)
def test_what_is_missing_is_said(foreign: Foreign, submitted: list[Run], path: str, sentence: str) -> None:
    app = with_model(foreign)
    app.text_input(key="a_path").set_value(path).run()
    app.button(key="a-begin").click().run()
    assert any(sentence in error.value.replace("\\", "") for error in app.error)
    assert submitted == []


def test_built_in_set_of_another_size_is_refused_before_anything_is_queued(
    foreign: Foreign, submitted: list[Run], store: RunStore
) -> None:
    app = with_model(foreign)
    app.radio(key="a_where").set_value("A built-in set").run()
    app.selectbox(key="a_set").set_value("mnist").run()
    app.button(key="a-begin").click().run()
    assert any("takes images of 1x12x12" in error.value.replace("\\", "") for error in app.error)
    assert submitted == []
    assert store.list("audit") == []


def test_address_of_another_kind_of_run_leads_to_its_page(foreign: Foreign, store: RunStore) -> None:
    with_model(foreign)
    (model,) = store.list("model")
    app = visit(run=model.id)
    assert not app.error
    assert app.query_params == {"run": model.id}
    assert "What was inferred" in texts(app)
