"""The full sets from files in their true formats, by hand and over a real (local) server, and without any.

torchvision checks CIFAR files by md5. The small files made here cannot have the published sums, so
the tests that read them tell torchvision the sums of these; nothing else is replaced.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import pickle
import socket
import struct
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recon_core.config import DataConfig, Source, Task
from recon_core.data import describe_source, import_torchvision, load_task, torchvision_sets
from recon_core.errors import InputError
from tests.processes import reserved_port

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder; nothing outside this machine can be reached, wherever the tests run."""
    folder = tmp_path / "data"
    monkeypatch.setenv("AFTERIMAGE_DATA", str(folder))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # urllib keeps the proxies it found at its first request, for the tests after these as well.
    monkeypatch.setattr(urllib.request, "_opener", None)
    with reserved_port() as closed:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.delenv(name.upper(), raising=False)
            monkeypatch.setenv(name, f"http://127.0.0.1:{closed}")
        yield folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served at."""
    served = tmp_path / "served"
    served.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def _idx(array: np.ndarray) -> bytes:
    """An array of bytes as MNIST is published: magic 0, 0, 8 (uint8), rank, big-endian lengths, data."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def _mnist() -> dict[str, np.ndarray]:
    return {
        "train-images-idx3-ubyte": RNG.integers(0, 256, (40, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": (np.arange(40) % 10).astype(np.uint8),
        "t10k-images-idx3-ubyte": RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": (np.arange(20) % 10).astype(np.uint8),
    }


def _put_mnist(folder: Path) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    arrays = _mnist()
    for name, array in arrays.items():
        (folder / name).write_bytes(_idx(array))
    return arrays


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _cifar(files: dict[str, dict[str, Any]], folder: str) -> tuple[bytes, dict[str, str]]:
    """A .tar.gz of pickles as published, and the md5 of each."""
    sums = {}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            data = pickle.dumps(content, protocol=2)
            sums[name] = _md5(data)
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue(), sums


def _batch(count: int, classes: int, key: str = "labels") -> dict[str, Any]:
    return {
        "data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
        key: [i % classes for i in range(count)],
    }


def _told() -> tuple[list[tuple[str, float | None]], Any]:
    told: list[tuple[str, float | None]] = []
    return told, lambda fraction, text: told.append((text, fraction))


def test_mnist_from_files_put_by_hand(root: Path) -> None:
    arrays = _put_mnist(root / "MNIST" / "raw")
    data = load_task(DataConfig(source=Source.MNIST_FULL, n=20))
    assert data.train_ids.tolist() == list(range(20))
    assert data.train_labels.tolist() == [0, 1] * 10
    pictures = torch.from_numpy(arrays["train-images-idx3-ubyte"][:20, None] / 255).float()
    torch.testing.assert_close(data.train_x + data.mean, pictures)
    assert data.test_x.shape == (20, 1, 28, 28)


def test_fashion_mnist_has_its_own_folder_and_class_names(root: Path) -> None:
    _put_mnist(root / "FashionMNIST" / "raw")
    config = DataConfig(source=Source.FASHION_MNIST, task=Task.MULTICLASS, classes=("Bag", "Coat"), per_class=2)
    assert load_task(config).train_ids.tolist() == [4, 8, 14, 18]
    odd = load_task(DataConfig(source=Source.FASHION_MNIST, partition="odd-even", n=4))
    assert odd.class_names == ("even", "odd")
    assert odd.train_labels.tolist() == [0, 1, 0, 1]


def test_class_names_are_torchvisions() -> None:
    datasets = import_torchvision("torchvision.datasets")
    assert describe_source(Source.FASHION_MNIST).class_names == tuple(datasets.FashionMNIST.classes)
    names = describe_source(Source.CIFAR100).class_names
    assert len(names) == len(set(names)) == 100
    assert list(names) == sorted(names)


def test_mnist_downloaded_from_the_second_mirror_with_progress(
    root: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, address = server
    arrays = _mnist()
    packed = {f"{name}.gz": gzip.compress(_idx(array)) for name, array in arrays.items()}
    for name, data in packed.items():
        (served / name).write_bytes(data)
    mnist = import_torchvision("torchvision.datasets").MNIST
    monkeypatch.setattr(mnist, "mirrors", ["http://unreachable.invalid/", address])
    monkeypatch.setattr(mnist, "resources", [(name, _md5(data)) for name, data in packed.items()])
    told, progress = _told()
    data = load_task(DataConfig(source=Source.MNIST_FULL, n=4), progress=progress)
    assert data.train_labels.tolist() == [0, 1, 0, 1]
    for name in packed:
        assert (f"downloading {name}", 1.0) in told
    left = {path.name for path in (root / "MNIST" / "raw").iterdir()}
    assert left == {*packed, *arrays}
    # The second time everything is there.
    for file in served.iterdir():
        file.unlink()
    told.clear()
    load_task(DataConfig(source=Source.MNIST_FULL, n=4), progress=progress)
    assert not any("downloading" in text for text, _ in told)


@pytest.mark.parametrize("source", [Source.CIFAR10_FULL, Source.CIFAR100])
def test_cifar_downloaded_and_from_an_archive_put_by_hand(
    root: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    served, address = server
    datasets = import_torchvision("torchvision.datasets")
    if source == Source.CIFAR100:
        dataset, names, key = datasets.CIFAR100, ["train"], "fine_labels"
        meta = {"fine_label_names": list(describe_source(source).class_names)}
    else:
        dataset, names, key = datasets.CIFAR10, ["data_batch_1", "data_batch_2"], "labels"
        meta = {"label_names": list(describe_source(source).class_names)}
    classes = len(describe_source(source).class_names)
    test = "test" if source == Source.CIFAR100 else "test_batch"
    files = {name: _batch(2 * classes, classes, key) for name in names} | {test: _batch(classes, classes, key)}
    archive, sums = _cifar(files | {dataset.meta["filename"]: meta}, dataset.base_folder)
    monkeypatch.setattr(dataset, "url", address + dataset.filename)
    monkeypatch.setattr(dataset, "tgz_md5", _md5(archive))
    monkeypatch.setattr(dataset, "train_list", [[name, sums[name]] for name in names])
    monkeypatch.setattr(dataset, "test_list", [[test, sums[test]]])
    monkeypatch.setattr(dataset, "meta", dataset.meta | {"md5": sums[dataset.meta["filename"]]})

    config = DataConfig(source=source, task=Task.MULTICLASS, classes=("0", "3"), per_class=2)
    with pytest.raises(InputError, match="404"):
        load_task(config)

    (served / dataset.filename).write_bytes(archive)
    told, progress = _told()
    data = load_task(config, progress=progress)
    assert (f"downloading {dataset.filename}", 1.0) in told
    assert data.train_ids.tolist() == [0, 3, classes, classes + 3]
    assert data.train_labels.tolist() == [0, 1, 0, 1]
    picture = files[names[0]]["data"][3].reshape(3, 32, 32) / 255
    torch.testing.assert_close(data.train_x[1] + data.mean, torch.from_numpy(picture).float())

    # Put by hand instead of downloaded, the archive will do.
    (served / dataset.filename).unlink()
    by_hand = root.with_name("by_hand")
    by_hand.mkdir()
    (by_hand / dataset.filename).write_bytes(archive)
    monkeypatch.setenv("AFTERIMAGE_DATA", str(by_hand))
    assert load_task(config).fingerprint == data.fingerprint

    # A batch file that was tampered with is never unpickled: the archive is unpacked over it.
    (by_hand / dataset.base_folder / names[0]).write_bytes(pickle.dumps({"data": 0}))
    assert load_task(config).fingerprint == data.fingerprint


def test_a_file_with_the_wrong_sum_is_not_kept(root: Path, server: tuple[Path, str], monkeypatch: Any) -> None:
    served, address = server
    cifar = import_torchvision("torchvision.datasets").CIFAR10
    (served / cifar.filename).write_bytes(b"something else")
    monkeypatch.setattr(cifar, "url", address + cifar.filename)
    with pytest.raises(InputError, match="different file than the published one"):
        load_task(DataConfig(source=Source.CIFAR10_FULL))
    assert [path.name for path in root.iterdir() if path.name != ".lock"] == []


OFFLINE = [
    (Source.MNIST_FULL, "MNIST/raw", "train-images-idx3-ubyte.gz", "data.source=mnist"),
    (Source.FASHION_MNIST, "FashionMNIST/raw", "t10k-labels-idx1-ubyte.gz", "data.source=mnist"),
    (Source.CIFAR10_FULL, "", "cifar-10-python.tar.gz", "data.source=cifar10"),
    (Source.CIFAR100, "", "cifar-100-python.tar.gz", "data.source=cifar10"),
]


@pytest.mark.parametrize(("source", "folder", "file", "instead"), OFFLINE)
def test_offline_says_what_to_put_where_and_what_to_use_instead(
    root: Path, source: Source, folder: str, file: str, instead: str
) -> None:
    with pytest.raises(InputError) as refusal:
        load_task(DataConfig(source=source, partition="odd-even"))
    text = str(refusal.value)
    assert f"into {root / folder} by hand" in text
    assert file in text
    assert text.endswith(instead)
    assert "\n" not in text


def test_a_silent_server_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_sets, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        cifar = import_torchvision("torchvision.datasets").CIFAR10
        monkeypatch.setattr(cifar, "url", address + cifar.filename)
        with pytest.raises(InputError, match="timed out"):
            load_task(DataConfig(source=Source.CIFAR10_FULL))


def test_a_name_server_that_never_answers_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up is the one part a test cannot make hang for real."""
    done = threading.Event()
    monkeypatch.setattr(torchvision_sets, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait())
    try:
        with pytest.raises(InputError, match="no answer"):
            load_task(DataConfig(source=Source.CIFAR10_FULL))
    finally:
        done.set()


def test_a_request_that_cannot_be_met_downloads_nothing(root: Path) -> None:
    with pytest.raises(InputError, match="n=51"):
        load_task(DataConfig(source=Source.MNIST_FULL, n=51))
    assert not root.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03" + bytes(5)),
        ("train-images-idx3-ubyte", _idx(np.zeros((40, 28, 28), np.uint8))[:-100]),
        ("train-labels-idx1-ubyte", _idx(np.zeros(39, np.uint8))),
        ("train-labels-idx1-ubyte", _idx(np.full(40, 77, np.uint8))),
    ],
)
def test_damaged_files_are_said(root: Path, name: str, content: bytes) -> None:
    raw = root / "MNIST" / "raw"
    _put_mnist(raw)
    (raw / name).write_bytes(content)
    with pytest.raises(InputError) as refusal:
        load_task(DataConfig(source=Source.MNIST_FULL))
    assert str(raw) in str(refusal.value)
    assert "delete them" in str(refusal.value)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AFTERIMAGE_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(InputError, match="AFTERIMAGE_DATA"):
        load_task(DataConfig(source=Source.CIFAR10_FULL))


def test_data_folder_defaults_to_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AFTERIMAGE_DATA")
    assert torchvision_sets.data_folder() == Path.home() / ".cache" / "afterimage"


def test_torchvision_loads_whichever_torch_stands_beside_it_and_loading_twice_is_fine() -> None:
    import_torchvision("torchvision.transforms")
    grid = import_torchvision("torchvision.utils").make_grid(torch.zeros(4, 1, 2, 2))
    assert grid.shape == (3, 6, 18)
    assert import_torchvision() is sys.modules["torchvision"]


def test_a_different_import_fault_is_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_torchvision("torchvision.no_such_module")
