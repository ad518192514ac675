"""An .npz of images, well-formed and otherwise."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recon_core.config import DataConfig, Source
from recon_core.data import TaskData, describe_source, load_task
from recon_core.data import image_npz as module
from recon_core.errors import InputError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1, 0, 1])


def _save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def _load(path: Path, **settings: object) -> TaskData:
    return load_task(DataConfig(source=Source.NPZ, path=str(path), **settings))  # type: ignore[arg-type]


def _refusal(path: Path, **settings: object) -> str:
    with pytest.raises(InputError) as refusal:
        _load(path, **{"n": 4, **settings})
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


UNIT = PIXELS / 255
SHAPES = [
    (PIXELS, UNIT.transpose(0, 3, 1, 2)),
    (PIXELS.transpose(0, 3, 1, 2), UNIT.transpose(0, 3, 1, 2)),
    (np.asfortranarray(PIXELS), UNIT.transpose(0, 3, 1, 2)),
    (UNIT, UNIT.transpose(0, 3, 1, 2)),
    (UNIT.astype(np.float32), UNIT.transpose(0, 3, 1, 2)),
    (UNIT.astype(">f4"), UNIT.transpose(0, 3, 1, 2)),
    (PIXELS[..., 0], UNIT[:, None, :, :, 0]),
    (PIXELS[..., :1], UNIT[:, None, :, :, 0]),
    (PIXELS[:, None, :, :, 0], UNIT[:, None, :, :, 0]),
]


@pytest.mark.parametrize(("images", "expected"), SHAPES)
def test_shapes_and_types_all_come_out_as_channels_first_in_zero_one(
    file: Path, images: np.ndarray, expected: np.ndarray
) -> None:
    _save(file, images=images, labels=LABELS)
    data = _load(file, n=4)
    assert data.train_ids.tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(data.train_x + data.mean, torch.from_numpy(expected[:4]).float())
    torch.testing.assert_close(data.test_x + data.mean, torch.from_numpy(expected[4:]).float())
    info = describe_source(Source.NPZ, str(file))
    assert (info.train_n, info.test_n, info.shape, info.class_names) == (6, 0, expected.shape[1:], ("0", "1"))


def test_own_test_set_and_class_names(file: Path) -> None:
    _save(
        file,
        images=PIXELS,
        labels=LABELS.astype(np.uint8),
        test_images=PIXELS[:2],
        test_labels=LABELS[:2],
        class_names=np.array(["cup", "hat"]),
    )
    data = _load(file, n=6)
    assert data.class_names == ("cup", "hat")
    assert data.test_ids.tolist() == [0, 1]
    torch.testing.assert_close(data.test_x, data.train_x[:2])
    assert describe_source(Source.NPZ, str(file)).test_n == 2


def test_labels_with_gaps_keep_their_names(file: Path) -> None:
    _save(file, images=PIXELS, labels=np.array([3, 7, 3, 7, 9, 9]))
    data = _load(file, n=4, partition="3|9")
    assert data.class_names == ("3", "9")
    assert data.train_ids.tolist() == [0, 2, 4, 5]


def test_compressed_files_are_read(file: Path) -> None:
    np.savez_compressed(file, images=PIXELS, labels=LABELS)
    assert _load(file, n=4).n == 4


def _spoiled(value: float) -> np.ndarray:
    images = UNIT.copy()
    images[[2, 4], 1, 1, 1] = value
    return images


BAD = [
    ({"labels": LABELS}, ["no array 'images'", "it has labels", "needs images"]),
    ({"images": PIXELS}, ["no array 'labels'", "it has images"]),
    ({}, ["no array 'images'", "it has nothing"]),
    ({"images": PIXELS, "labels": LABELS[:5]}, ["5 entries for 6 images"]),
    ({"images": PIXELS, "labels": LABELS[:, None]}, ["one integer per image", "(6, 1)"]),
    ({"images": PIXELS, "labels": LABELS.astype(float)}, ["one integer per image", "float64"]),
    ({"images": PIXELS, "labels": LABELS - 1}, ["negative label -1"]),
    ({"images": PIXELS, "labels": LABELS.astype(np.uint64) * 2**63}, ["label 9223372036854775808"]),
    ({"images": PIXELS, "labels": LABELS * 0}, ["one class only (0)"]),
    ({"images": _spoiled(np.nan), "labels": LABELS}, ["NaN", "2 of 6", "position 2", "repair"]),
    ({"images": _spoiled(np.inf), "labels": LABELS}, ["NaN or infinite", "2 of 6"]),
    ({"images": UNIT * 255, "labels": LABELS}, ["from 0 to 255", "[0, 1]"]),
    ({"images": UNIT - 0.5, "labels": LABELS}, ["from -0.5 to 0.5"]),
    ({"images": PIXELS.astype(np.int64), "labels": LABELS}, ["int64", "uint8"]),
    ({"images": PIXELS.astype(complex), "labels": LABELS}, ["complex128"]),
    ({"images": np.zeros((6, 4), np.uint8), "labels": LABELS}, ["(6, 4)", "(N, H, W)"]),
    ({"images": np.zeros((6, 4, 5, 4), np.uint8), "labels": LABELS}, ["(6, 4, 5, 4)", "1 or 3 channels"]),
    ({"images": np.zeros((6, 0, 5), np.uint8), "labels": LABELS}, ["0 pixels"]),
    ({"images": np.zeros((6, 600, 600), np.uint8), "labels": LABELS}, ["360000 pixels"]),
    ({"images": PIXELS[:0], "labels": LABELS[:0]}, ["'images'", "empty"]),
    ({"images": np.uint8(3), "labels": LABELS}, ["6 entries for 0 images"]),
    ({"images": PIXELS, "labels": LABELS, "test_images": PIXELS}, ["test_images but no test_labels"]),
    ({"images": PIXELS, "labels": LABELS, "test_labels": LABELS}, ["test_labels but no test_images"]),
    (
        {"images": PIXELS, "labels": LABELS, "test_images": PIXELS[:, :3], "test_labels": LABELS},
        ["test_images", "(3, 3, 5)", "(3, 4, 5)"],
    ),
    ({"images": PIXELS, "labels": LABELS, "test_images": PIXELS, "test_labels": LABELS + 1}, ["label 2"]),
    (
        {"images": PIXELS, "labels": LABELS, "test_images": PIXELS, "test_labels": LABELS * 0},
        ["test set", "no images of '1'"],
    ),
    ({"images": PIXELS, "labels": LABELS, "class_names": np.array(["cup"])}, ["up to 1", "1 names"]),
    ({"images": PIXELS, "labels": LABELS, "class_names": np.array(["cup", "cup"])}, ["'cup'", "twice"]),
    ({"images": PIXELS, "labels": LABELS, "class_names": np.array([1, 2])}, ["list of names", "int64"]),
    ({"images": PIXELS, "labels": LABELS * 2, "class_names": np.array(["a", "b", "c"])}, ["set data.partition"]),
]


@pytest.mark.parametrize(("arrays", "said"), BAD)
def test_refused_in_one_sentence(file: Path, arrays: dict[str, Any], said: list[str]) -> None:
    text = _refusal(_save(file, **arrays))
    for words in [*said, str(file)]:
        assert words in text


def test_a_named_class_without_images_is_said(file: Path) -> None:
    _save(file, images=PIXELS, labels=LABELS * 2, class_names=np.array(["a", "b", "c"]))
    assert "no images of class 'b'" in _refusal(file, partition="a|b")


def test_nothing_is_unpickled(file: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("unpickled",))

    objects = np.empty(6, dtype=object)
    objects[:] = [Trap()] * 6
    for name in ("images", "labels", "class_names"):
        arrays = {"images": PIXELS, "labels": LABELS, name: objects}
        np.savez(file, allow_pickle=True, **arrays)
        assert f"array {name!r} in {str(file)!r} holds Python objects" in _refusal(file)


@pytest.mark.parametrize("shape", [(100_000, 1000, 1000), (6, 4, 5), (-6, -4, 5), (2**62, 4, 4)])
def test_an_array_that_lies_about_its_shape_is_refused_unread(file: Path, shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("images.npy", header.getvalue() + bytes(120 if min(shape) < 0 else 8))
    assert "claims shape" in _refusal(file)


def test_a_file_that_unpacks_to_too_much_is_refused_unread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(file, images=np.zeros((200, 100, 100), np.uint8), labels=np.arange(200) % 2)
    assert file.stat().st_size < 20_000
    monkeypatch.setattr(module, "MAX_SET_BYTES", 2**20)
    assert "at most 1 MiB" in _refusal(file)


def test_damaged_files(file: Path) -> None:
    assert "no file" in _refusal(file)
    file.write_bytes(b"")
    assert "not an .npz" in _refusal(file)
    np.save(file.with_suffix(".npy"), PIXELS)
    assert "not an .npz" in _refusal(file.with_suffix(".npy"))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("images.npy", b"not an array")
    assert "'images'" in _refusal(file)
    assert "damaged" in _refusal(file)


def test_flipped_bytes_are_refused_or_harmless(file: Path, tmp_path: Path) -> None:
    """Whatever happens to the bytes, the answer is a task or a sentence."""
    _save(file, images=PIXELS, labels=LABELS)
    whole = file.read_bytes()
    other = tmp_path / "other.npz"
    for seed in range(300):
        rng = np.random.default_rng(seed)
        changed = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            changed[place] = rng.integers(0, 256)
        other.write_bytes(changed)
        with contextlib.suppress(InputError):
            assert _load(other, n=4).train_x.isfinite().all()


def _in_a_minute_of_work(path: Path, **settings: object) -> str:
    """What a process says that reads `path` and is ended by the system after 60 s of work, waiting not counted."""
    program = (
        "import sys, json, resource; resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "from recon_core.config import DataConfig\n"
        "from recon_core.data import load_task\n"
        "from recon_core.errors import InputError\n"
        "try: print(load_task(DataConfig(**json.loads(sys.argv[1]))).train_ids.tolist()[:3])\n"
        "except InputError as error: print(error)\n"
    )
    asked = json.dumps({"source": "npz", "path": str(path), **settings})
    done = subprocess.run([sys.executable, "-c", program, asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout.strip()


@pytest.mark.slow
def test_the_work_for_many_class_names_grows_as_their_number(file: Path) -> None:
    """Each compared with each other, 300,000 names take a quarter of an hour; looked up, about a second."""
    names = np.array([f"{number:x}" for number in range(300_000)])
    _save(file, images=PIXELS, labels=LABELS, class_names=names)
    assert _in_a_minute_of_work(file, partition="0|1", n=4) == "[0, 1, 2]"
    names[-1] = names[7]
    _save(file, images=PIXELS, labels=LABELS, class_names=names)
    assert "'7' empty or twice" in _in_a_minute_of_work(file, partition="0|1", n=4)


@pytest.mark.slow
def test_the_work_for_many_classes_grows_as_their_number(file: Path) -> None:
    """As many classes as images, each to be found among all."""
    labels = np.arange(600_000, dtype=np.int32)
    _save(file, images=np.zeros((len(labels), 1, 1), np.uint8), labels=labels)
    assert _in_a_minute_of_work(file, task="multiclass", per_class=1) == "[0, 1, 2]"
