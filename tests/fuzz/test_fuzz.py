"""Whatever is read from outside, broken in some 1,700 generated ways.

Each case must end in one sentence or in a value, must not run anything, must leave no file behind, and all
of them together must not grow the process beyond `MEMORY_BOUND`. Hand-made cases stand beside each reader.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from recon_core.attacks import AttackSettings
from recon_core.config import DataConfig, TrainConfig, parse_config
from recon_core.data import load_task
from recon_core.errors import AfterimageError
from recon_core.models.foreign import read_checkpoint
from recon_core.runs.match_source import MatchConfig
from recon_core.scheduling import Places
from recon_core.settings_text import read_values
from recon_core.store import RunState, RunStore, layout
from recon_core.store.ids import checked_id, checked_name
from recon_core.studies.cells import expand
from recon_core.studies.custom import plan_from_text
from recon_core.studies.settings import known_keys

MEMORY_BOUND = 768 * 2**20
"""Bytes by which the whole module may raise the peak of the process: room for one refused file at its limit."""

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # zipfile and PIL remark on broken files
many = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY_BOUND, f"the readers took {grown / 2**20:.0f} MiB"


class Trap:
    """Unpickled by a careless reader, it leaves a file."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._flag,))


def state_dict() -> dict[str, torch.Tensor]:
    return {"0.weight": torch.ones(4, 6), "0.bias": torch.zeros(4), "2.weight": torch.ones(1, 4)}


def torch_file(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def npz_file(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def png_file() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(buffer, "PNG")
    return buffer.getvalue()


@st.composite
def broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """`whole` with bytes changed, cut out, put in, doubled, or its end missing."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["change", "number", "cut", "insert", "double", "end"])):
            case "change":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "number":  # lengths and offsets are where readers trip
                data[at : at + 8] = struct.pack("<Q", draw(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1])))
            case "cut":
                del data[at : at + draw(st.integers(1, 64))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=32))
            case "double":
                data[at:at] = data[at : at + 64]
            case "end":
                del data[at:]
    return bytes(data)


def refused_or_read(read: Callable[[], object]) -> None:
    """The one way to fail is a sentence."""
    try:
        read()
    except AfterimageError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence
        assert len(sentence) < 1200
        assert "Traceback" not in sentence


def leaving_nothing(folder: Path, read: Callable[[], object]) -> None:
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    refused_or_read(read)
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == before


class TestCheckpoints:
    @many
    @given(broken(torch_file(state_dict())))
    def test_broken_torch_files(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "model.pth"
        path.write_bytes(data)
        leaving_nothing(tmp_path, lambda: read_checkpoint(path, input_shape=(6,)))

    @many
    @given(broken(safetensors.torch.save(state_dict())))
    def test_broken_safetensors(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "model.safetensors"
        path.write_bytes(data)
        leaving_nothing(tmp_path, lambda: read_checkpoint(path, input_shape=(6,)))

    @many
    @given(
        st.dictionaries(
            st.text(max_size=12),
            st.fixed_dictionaries(
                {
                    "dtype": st.sampled_from(["F32", "F64", "F16", "I64", "BOOL", "F8_E4M3", "??", 3]),
                    "shape": st.lists(st.integers(-1, 2**62), max_size=4),
                    "data_offsets": st.lists(st.integers(-(2**63), 2**63), max_size=3),
                }
            ),
            max_size=5,
        ),
        st.sampled_from([0, 1, -1, 2**40]),
    )
    def test_lying_headers(self, tmp_path: Path, header: dict[str, Any], lie: int) -> None:
        text = json.dumps(header).encode()
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", max(0, len(text) + lie)) + text + bytes(64))
        leaving_nothing(tmp_path, lambda: read_checkpoint(path, input_shape=(6,)))

    @many
    @given(st.data())
    def test_traps_are_never_sprung(self, tmp_path: Path, data: st.DataObject) -> None:
        """Pickles that would run something, bare and inside a torch file, whole and broken."""
        flag = tmp_path / "sprung"
        inner = pickle.dumps({"0.weight": Trap(flag)}, protocol=data.draw(st.sampled_from([0, 2, 4, 5])))
        if data.draw(st.booleans()):
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                archive.writestr("archive/data.pkl", inner)
                archive.writestr("archive/version", "3\n")
            inner = buffer.getvalue()
        path = tmp_path / data.draw(st.sampled_from(["model.pth", "model.pt", "model.safetensors"]))
        path.write_bytes(data.draw(st.one_of(st.just(inner), broken(inner))))
        refused_or_read(lambda: read_checkpoint(path, input_shape=(6,)))
        path.unlink()
        assert not flag.exists()


class TestImages:
    @many
    @given(broken(npz_file(x=np.zeros((4, 8, 8, 3), np.uint8), y=np.array([0, 1, 0, 1]))))
    def test_broken_npz(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "images.npz"
        path.write_bytes(data)
        config = DataConfig(source="npz", path=str(path), n=2)
        leaving_nothing(tmp_path, lambda: load_task(config))

    @many
    @given(broken(png_file()))
    def test_broken_pictures(self, tmp_path: Path, data: bytes) -> None:
        for name in ("cats", "dogs"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "a.png").write_bytes(png_file())
        (tmp_path / "dogs" / "a.png").write_bytes(data)
        config = DataConfig(source="folder", path=str(tmp_path), n=2)
        leaving_nothing(tmp_path, lambda: load_task(config))


@pytest.fixture(scope="module")
def run_zip(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("zip")
    store = RunStore(folder / "runs")
    run = store.create("train", {"data": {"n": 4}}, name="mine")
    with run.writer() as writer:
        writer.start(1)
        writer.metrics({"step": 1, "loss": 0.5})
        writer.save_tensors("weights", state_dict())
        writer.finish(RunState.DONE, {"loss": 0.5})
    return store.export(run.id, folder).read_bytes()


class TestRunZips:
    @many
    @given(data=st.data())
    def test_broken_zips(self, tmp_path: Path, run_zip: bytes, data: st.DataObject) -> None:
        path = tmp_path / "run.zip"
        path.write_bytes(data.draw(broken(run_zip)))
        store = RunStore(tmp_path / "store")
        refused_or_read(lambda: store.import_zip(path))
        outside = [found for found in tmp_path.iterdir() if found.name not in ("run.zip", "store")]
        assert outside == []
        assert store.check() == []

    @many
    @given(st.text(st.sampled_from("./\\~a\x00:C- \u202e"), min_size=1, max_size=30), st.booleans())
    def test_names_that_lead_elsewhere(self, tmp_path: Path, name: str, link: bool) -> None:
        path = tmp_path / "run.zip"
        with zipfile.ZipFile(path, "w") as archive:
            entry = zipfile.ZipInfo(name)
            if link:
                entry.external_attr = 0o120777 << 16
            archive.writestr(entry, "/etc/passwd")
        store = RunStore(tmp_path / "store")
        refused_or_read(lambda: store.import_zip(path))
        assert {found.name for found in tmp_path.iterdir()} <= {"run.zip", "store"}
        assert store.list() == []


class TestRunFolders:
    """A store on a disk that others write to, or that was damaged: looked at, never trusted."""

    @many
    @given(data=st.data())
    def test_broken_files_of_a_run(self, tmp_path: Path, run_zip: bytes, data: st.DataObject) -> None:
        whole = tmp_path / "run.zip"
        whole.write_bytes(run_zip)
        store = RunStore(tmp_path / "store")
        for known in store.list():
            store.delete(known.id)
        [run] = store.import_zip(whole)
        name = data.draw(st.sampled_from([layout.RUN, layout.STATUS, layout.CONFIG, layout.METRICS, layout.RESULT]))
        file = store.root / run.id / name
        file.chmod(0o644)
        file.write_bytes(data.draw(broken(file.read_bytes())))
        [listed] = store.list()  # damaged or not, it can be seen and deleted
        for read in (
            store.check,
            run.status,
            run.metrics,
            run.result,
            lambda: run.config,
            lambda: run.tensors("weights"),
        ):
            refused_or_read(read)
        assert listed.id == run.id


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["1e999", "nan", "-0", "1000,1000", "../../x", "<script>", "kaiming", "flow"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def some_config(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    names = list(kind.model_fields)  # type: ignore[attr-defined]
    return st.dictionaries(st.one_of(st.sampled_from(names), st.text(max_size=8)), values, max_size=4)


STUDY = """name: mine
preset: cifar10-50
set: {attack.iterations: 600}
vary: {data.n: [10, 20, 50], model.bias: [first, none]}
seeds: 3
references: {small start: {model.init_scale: 0.001}}
"""


class TestSettings:
    @many
    @given(
        st.fixed_dictionaries(
            {},
            optional={"data": some_config(DataConfig), "training": some_config(AttackSettings), "model": values},
        )
    )
    def test_training_configs(self, config: dict[str, Any]) -> None:
        refused_or_read(lambda: parse_config(TrainConfig, config))

    @many
    @given(some_config(AttackSettings))
    def test_attack_settings(self, config: dict[str, Any]) -> None:
        refused_or_read(lambda: parse_config(AttackSettings, config))

    @many
    @given(some_config(MatchConfig))
    def test_match_settings(self, config: dict[str, Any]) -> None:
        refused_or_read(lambda: parse_config(MatchConfig, config))

    @many
    @given(some_config(Places))
    def test_places(self, config: dict[str, Any]) -> None:
        refused_or_read(lambda: parse_config(Places, config))

    @many
    @given(broken(STUDY.encode()))
    def test_broken_study_files(self, content: bytes) -> None:
        refused_or_read(lambda: expand(plan_from_text("mine.yaml", content)))

    @many
    @given(
        st.fixed_dictionaries(
            {"vary": st.dictionaries(st.sampled_from(known_keys()), st.lists(values, max_size=40), max_size=30)},
            optional={
                "set": st.dictionaries(st.sampled_from(known_keys()), values, max_size=3),
                "seeds": values,
                "preset": st.sampled_from(["cifar10-50", "circle", "?"]),
                "scale": st.sampled_from(["log", "linear", 3]),
                "references": st.dictionaries(st.text(max_size=5), values, max_size=3),
            },
        )
    )
    def test_studies_of_anything(self, study: dict[str, Any]) -> None:
        """Thirty keys of forty values are more models than there are atoms."""
        refused_or_read(lambda: expand(plan_from_text("mine.json", json.dumps(study).encode())))

    @many
    @given(st.text(st.sampled_from("[]{}:,-&*a!? \n'\"0x1e#|>%@`"), max_size=60))
    def test_text_that_is_hardly_yaml(self, text: str) -> None:
        refused_or_read(lambda: read_values(text, "it"))

    @pytest.mark.parametrize(
        "text",
        [
            "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]",
            "!!python/object/apply:os.system ['true']",
            "[" * 100_000,
            "{a: " * 5_000,
            f"n: 0x{'f' * 9_000}",
            f"n: {'9' * 9_000}",
            "n: 1e400\nwidths: [.inf, .nan, -.inf]",
        ],
    )
    def test_text_made_to_hurt(self, text: str, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
        (tmp_path / "mine.yaml").write_text(text)
        for command in (("train", "--config"), ("study",)):
            code, _, said = cli(*command, "mine.yaml", "--quiet")
            assert code == 2, said
            assert said.count("\n") == 1
            assert len(said) < 1200

    @many
    @given(st.text(max_size=200))
    def test_names_and_addresses(self, tmp_path: Path, text: str) -> None:
        store = RunStore(tmp_path / "store")
        refused_or_read(lambda: checked_id(text))
        refused_or_read(lambda: checked_name(text))
        leaving_nothing(tmp_path, lambda: store.open(text))
