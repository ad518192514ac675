"""A folder of images, written by Pillow here and read back through `load_task`."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from recon_core.config import DataConfig, Source
from recon_core.data import TaskData, describe_source, load_task
from recon_core.data import image_folder as module
from recon_core.errors import InputError


def _pixels(seed: int, shape: tuple[int, ...] = (4, 5, 3)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, cats with four colour images of 5x4 and dogs with three."""
    root = tmp_path / "pets"
    for name, count in (("dogs", 3), ("cats", 4)):
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(_pixels(len(name) * 10 + count * number)).save(root / name / f"{number}.png")
    return root


def _load(root: Path, **settings: object) -> TaskData:
    return load_task(DataConfig(source=Source.FOLDER, path=str(root), **settings))  # type: ignore[arg-type]


def _refusal(root: Path, **settings: object) -> str:
    with pytest.raises(InputError) as refusal:
        _load(root, **{"n": 4, **settings})
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_classes_files_and_pixels_come_in_order_of_name(folder: Path) -> None:
    data = _load(folder, n=4)
    assert data.class_names == ("cats", "dogs")
    assert data.train_ids.tolist() == [0, 1, 4, 5]
    assert data.train_labels.tolist() == [0, 0, 1, 1]
    files = [folder / "cats/0.png", folder / "cats/1.png", folder / "dogs/0.png", folder / "dogs/1.png"]
    pictures = np.stack([np.asarray(Image.open(file)) for file in files]).transpose(0, 3, 1, 2)
    torch.testing.assert_close(data.train_x + data.mean, torch.from_numpy(pictures / 255).float())


def test_what_training_leaves_over_is_the_balanced_test_set(folder: Path) -> None:
    data = _load(folder, n=4)
    assert data.test_ids.tolist() == [2, 6]
    assert data.test_labels.tolist() == [0, 1]
    everything = _load(folder, n=6)
    assert everything.test_x.shape == (0, 3, 4, 5)
    assert everything.test_labels.dtype == torch.int64


def test_described_without_reading_all(folder: Path) -> None:
    (folder / "dogs" / "2.png").write_bytes(b"not looked at")
    info = describe_source(Source.FOLDER, str(folder))
    assert (info.class_names, info.train_n, info.test_n, info.shape) == (("cats", "dogs"), 7, 0, (3, 4, 5))


def test_progress_ends_at_one(folder: Path) -> None:
    told: list[tuple[str, float | None]] = []
    load_task(
        DataConfig(source=Source.FOLDER, path=str(folder), n=4),
        progress=lambda fraction, text: told.append((text, fraction)),
    )
    assert told[-1][1] == 1.0
    assert len(told) == 7


def test_hidden_files_other_files_and_outward_links_are_passed_over(folder: Path, tmp_path: Path) -> None:
    before = _load(folder, n=6).fingerprint
    (folder / ".hidden").mkdir()
    (folder / "cats" / ".DS_Store").write_bytes(b"x")
    (folder / "cats" / "notes.txt").write_text("x")
    (folder / "readme.png").write_bytes(b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    Image.fromarray(_pixels(99, (9, 9, 3))).save(outside / "0.png")
    (folder / "cats" / "00.png").symlink_to(outside / "0.png")
    (folder / "more").symlink_to(outside)
    (folder / "cats" / "loop.png").symlink_to(folder / "cats" / "loop.png")
    os.mkfifo(folder / "cats" / "pipe.png")
    data = _load(folder, n=6)
    assert data.fingerprint == before
    assert data.class_names == ("cats", "dogs")


@pytest.mark.parametrize(
    ("mode", "kind"), [("1", "L"), ("L", "L"), ("LA", "L"), ("RGB", "RGB"), ("RGBA", "RGB"), ("P", "RGB")]
)
def test_opaque_eight_bit_modes_are_read_as_grey_or_colour(tmp_path: Path, mode: str, kind: str) -> None:
    picture = Image.fromarray(_pixels(1)).convert(kind).convert(mode)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        picture.save(tmp_path / name / "x.png")
    expected = np.atleast_3d(np.asarray(picture.convert(kind))).transpose(2, 0, 1)
    data = _load(tmp_path, n=2)
    assert (data.mean * 255).round().int().tolist() == expected.tolist()


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "bmp", "webp", "gif", "PNG"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    for name, value in (("a", 10), ("b", 250)):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8), (value, value, value)).save(tmp_path / name / f"x.{suffix}")
    data = _load(tmp_path, n=2)
    torch.testing.assert_close(data.mean, torch.full_like(data.mean, 130 / 255), atol=0.02, rtol=0)


def test_first_frame_of_an_animation_is_read(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 4), value) for value in (40, 200)]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        frames[0].save(tmp_path / name / "x.gif", save_all=True, append_images=frames[1:])
    data = _load(tmp_path, n=2)
    torch.testing.assert_close(data.mean, torch.full_like(data.mean, 40 / 255))


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(_pixels(2)).save(tmp_path / name / "x.jpg", exif=exif)
    assert _load(tmp_path, n=2).input_shape == (3, 5, 4)


def test_mixed_sizes_name_both_files(folder: Path) -> None:
    Image.fromarray(_pixels(5, (6, 7, 3))).save(folder / "dogs" / "1.png")
    text = _refusal(folder)
    for words in ("cats/0.png", "5x4", "dogs/1.png", "7x6", "resize"):
        assert words in text


def test_mixed_grey_and_colour_name_both_files(folder: Path) -> None:
    Image.fromarray(_pixels(5, (4, 5))).save(folder / "dogs" / "1.png")
    text = _refusal(folder)
    for words in ("cats/0.png is colour", "dogs/1.png is grey"):
        assert words in text


@pytest.mark.parametrize("cut", [0, 10, 40, 60])
def test_a_damaged_file_is_named(folder: Path, cut: int) -> None:
    file = folder / "dogs" / "1.png"
    file.write_bytes(file.read_bytes()[:cut])
    assert str(file) in _refusal(folder)


def test_other_pixel_kinds_are_refused_by_name(folder: Path) -> None:
    file = folder / "dogs" / "1.jpg"
    Image.fromarray(_pixels(5)).convert("CMYK").save(file)
    assert f"{str(file)!r} has pixels of mode CMYK" in _refusal(folder)
    file.unlink()
    deep = folder / "dogs" / "1b.png"
    Image.fromarray(_pixels(5, (4, 5)).astype(np.uint16) * 200).save(deep)
    assert "I;16" in _refusal(folder)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_refused(folder: Path, mode: str) -> None:
    image = Image.fromarray(_pixels(5, (4, 5, 4)))
    image.convert(mode).save(folder / "dogs" / "1.png", **({"transparency": 0} if mode == "P" else {}))
    assert "transparent" in _refusal(folder)


def _bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be `width` x `height`."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [513, 10_000, 60_000])
def test_huge_images_are_refused_unread(folder: Path, side: int) -> None:
    file = folder / "cats" / "0.png"
    file.write_bytes(_bomb(side, side))
    text = _refusal(folder)
    assert str(file) in text
    assert "262144" in text


def test_huge_sets_are_refused_unread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SET_BYTES", 7 * 60 - 1)
    assert "7 images of 5x4" in _refusal(folder)


def test_refusals_about_the_folder_itself(folder: Path, tmp_path: Path) -> None:
    assert "no folder" in _refusal(tmp_path / "nowhere")
    assert "no folder" in _refusal(tmp_path / ("x" * 300))
    assert "no folder" in _refusal(folder / "cats" / "0.png")
    assert "no subfolders" in _refusal(folder / "cats")
    (folder / "empty").mkdir()
    assert "empty" in _refusal(folder)
    assert "no image files" in _refusal(folder)


def test_one_class_only(folder: Path) -> None:
    for file in (folder / "dogs").iterdir():
        file.unlink()
    (folder / "dogs").rmdir()
    text = _refusal(folder)
    assert "one class only (cats)" in text
    assert str(folder) in text


def test_more_asked_than_there_are(folder: Path) -> None:
    assert "has 3; use n=6 or less" in _refusal(folder, n=8)


def test_classes_named_by_numbers_are_found_by_name(tmp_path: Path) -> None:
    for name in ("1", "2", "5"):
        (tmp_path / name).mkdir()
        Image.fromarray(_pixels(int(name))).save(tmp_path / name / "x.png")
    assert _load(tmp_path, n=2, partition="5|2").train_ids.tolist() == [1, 2]
    assert _load(tmp_path, n=2, partition="5|2").train_labels.tolist() == [1, 0]
    assert "unknown class '0'" in _refusal(tmp_path, n=2, partition="0|2")
    assert _load(tmp_path, n=2, partition="odd-even").train_ids.tolist() == [0, 1]
    assert "set data.partition" in _refusal(tmp_path)
