"""Full MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, read by torchvision from a folder that is filled on first use.

Archives are fetched here rather than by torchvision, which waits for ever on a silent server and
reports progress to a terminal only. Addresses, file names and checksums are torchvision's own.
"""

from __future__ import annotations

import hashlib
import os
import queue
import tempfile
import threading
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
from filelock import FileLock, Timeout

from recon_core.config import Source
from recon_core.data.class_names import CIFAR10_CLASSES, CIFAR100_CLASSES, FASHION_MNIST_CLASSES, MNIST_CLASSES
from recon_core.data.torchvision_import import import_torchvision
from recon_core.data.types import ImageSet, SourceInfo, Split
from recon_core.errors import InputError
from recon_core.observing import Listener, ignore

ANSWER_SECONDS = 5.0
"""Seconds without an answer after which a server counts as out of reach."""

LOCK_SECONDS = 900.0
"""Seconds to wait for another process that is downloading the same files."""

MAX_ARCHIVE_BYTES = 2**29

_NOTE = "downloaded on first use"

FULL_SETS: dict[str, SourceInfo] = {
    Source.MNIST_FULL: SourceInfo("MNIST, full", MNIST_CLASSES, 60_000, 10_000, (1, 28, 28), _NOTE),
    Source.FASHION_MNIST: SourceInfo("Fashion-MNIST", FASHION_MNIST_CLASSES, 60_000, 10_000, (1, 28, 28), _NOTE),
    Source.CIFAR10_FULL: SourceInfo("CIFAR-10, full", CIFAR10_CLASSES, 50_000, 10_000, (3, 32, 32), _NOTE),
    Source.CIFAR100: SourceInfo("CIFAR-100", CIFAR100_CLASSES, 50_000, 10_000, (3, 32, 32), _NOTE),
}


class _Origin(NamedTuple):
    """torchvision's name for a set, and the embedded set to use when it cannot be had."""

    dataset: str
    instead: Source


_ORIGINS: dict[str, _Origin] = {
    Source.MNIST_FULL: _Origin("MNIST", Source.MNIST),
    Source.FASHION_MNIST: _Origin("FashionMNIST", Source.MNIST),
    Source.CIFAR10_FULL: _Origin("CIFAR10", Source.CIFAR10),
    Source.CIFAR100: _Origin("CIFAR100", Source.CIFAR10),
}


class _Archive(NamedTuple):
    """A file as published: its addresses, name and md5."""

    urls: tuple[str, ...]
    name: str
    md5: str


class _Archives(NamedTuple):
    """What a set is made of, the folder the archives go to, and the one their files end up in."""

    archives: tuple[_Archive, ...]
    folder: Path
    unpacked: Path


class _OutOfReachError(Exception):
    """A file could not be fetched; the message says why."""


def data_folder() -> Path:
    """Where full sets are kept: $AFTERIMAGE_DATA, or ~/.cache/afterimage."""
    return Path(os.environ.get("AFTERIMAGE_DATA") or "~/.cache/afterimage").expanduser().absolute()


def read_full(source: str, progress: Listener | None = None) -> ImageSet:
    """Read one of `FULL_SETS`, fetching its files first where they are not there yet."""
    report = progress or ignore
    report(None, f"reading {source}")
    dataset = getattr(import_torchvision("torchvision.datasets"), _ORIGINS[source].dataset)
    root = data_folder()
    parts = _read_parts(source, dataset, root)
    if parts is None:
        _provide(source, dataset, root, report)
        report(None, f"reading {source}")
        parts = _read_parts(source, dataset, root)
    if parts is None:
        raise InputError(
            f"the files of {source} in {root} are incomplete or not the published ones; "
            "delete them to have them fetched again"
        )
    return ImageSet(parts[0], parts[1], FULL_SETS[source].class_names)


def _read_parts(source: str, dataset: Any, root: Path) -> tuple[Split, Split] | None:
    """Train and test as torchvision reads them, None where it finds its files missing."""
    try:
        train, test = (
            _split(dataset(str(root), train=part), len(FULL_SETS[source].class_names)) for part in (True, False)
        )
    except RuntimeError as error:
        if "not found" in str(error):
            return None
        raise _damaged(source, dataset, root, error) from error
    except (AssertionError, ValueError, TypeError, IndexError, KeyError, OSError) as error:
        raise _damaged(source, dataset, root, error) from error
    return train, test


def _damaged(source: str, dataset: Any, root: Path, error: Exception) -> InputError:
    folder = _archives(dataset, root).unpacked
    return InputError(
        f"the files of {source} in {folder} cannot be read ({str(error) or type(error).__name__}); "
        "delete them to have them fetched again"
    )


def _split(dataset: Any, classes: int) -> Split:
    """torchvision keeps MNIST as a tensor (N, H, W) and CIFAR as an array (N, H, W, C), both uint8."""
    images = np.asarray(dataset.data)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    labels = np.asarray(dataset.targets, dtype=np.int64)
    if len(labels) != len(images):
        raise ValueError(f"{len(images)} images but {len(labels)} labels")
    if labels.size and labels.max() >= classes:
        raise ValueError(f"label {labels.max()} in a set of {classes} classes")
    return Split(images, labels, np.arange(len(images)))


# -- fetching --------------------------------------------------------------------------------------


def _archives(dataset: Any, root: Path) -> _Archives:
    if hasattr(dataset, "resources"):
        raw = root / dataset.__name__ / "raw"
        listed = tuple(
            _Archive(tuple(mirror + name for mirror in dataset.mirrors), name, md5) for name, md5 in dataset.resources
        )
        return _Archives(listed, raw, raw)
    archive = _Archive((dataset.url,), dataset.filename, dataset.tgz_md5)
    return _Archives((archive,), root, root / dataset.base_folder)


def _provide(source: str, dataset: Any, root: Path, report: Listener) -> None:
    """Fetch and unpack what is missing; one process at a time."""
    wanted = _archives(dataset, root)
    try:
        wanted.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock", timeout=LOCK_SECONDS):
            for archive in wanted.archives:
                target = wanted.folder / archive.name
                if not _is_published(target, archive.md5):
                    _fetch(archive, target, report)
                report(None, f"unpacking {archive.name}")
                _unpack(target, wanted.folder)
    except _OutOfReachError as error:
        names = ", ".join(archive.name for archive in wanted.archives)
        raise InputError(
            f"{source} is not in {root} and could not be downloaded ({error}); put {names} into {wanted.folder} "
            f"by hand, or use the embedded subset with data.source={_ORIGINS[source].instead}"
        ) from error
    except Timeout as error:
        raise InputError(
            f"another process has been fetching into {root} for {LOCK_SECONDS:.0f} s; try again when it is done"
        ) from error
    except OSError as error:
        raise InputError(
            f"cannot write {source} into {root} ({error}); set AFTERIMAGE_DATA to a folder that can be written"
        ) from error


def _fetch(archive: _Archive, target: Path, report: Listener) -> None:
    """Download to `target`, which appears only once whole and with the right md5."""
    partial = target.with_name(f".{target.name}.part")
    reasons = []
    for url in archive.urls:
        try:
            _download(url, partial, archive.name, report)
            if _is_published(partial, archive.md5):
                partial.replace(target)
                return
            reasons.append(f"{urlsplit(url).hostname} sent a different file than the published one")
        except (OSError, HTTPException) as error:
            reasons.append(f"{urlsplit(url).hostname}: {_cause(error)}")
        finally:
            partial.unlink(missing_ok=True)
    raise _OutOfReachError(", ".join(reasons))


def _download(url: str, target: Path, name: str, report: Listener) -> None:
    with _open(url) as response, target.open("wb") as file:
        total = response.length
        done = 0
        while chunk := response.read(2**18):
            file.write(chunk)
            done += len(chunk)
            if done > MAX_ARCHIVE_BYTES:
                raise OSError(f"more than {MAX_ARCHIVE_BYTES >> 20} MiB sent")
            report(done / total if total else None, f"downloading {name}")


def _open(url: str) -> HTTPResponse:
    """`urlopen` with a deadline that also covers the look-up of the name, which no socket timeout reaches."""
    answers: queue.SimpleQueue[HTTPResponse | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urlopen(Request(url, headers={"User-Agent": "afterimage"}), timeout=ANSWER_SECONDS))
        except Exception as error:  # handed over to the thread that waits
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=2 * ANSWER_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer in {2 * ANSWER_SECONDS:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _cause(error: OSError | HTTPException) -> str:
    if isinstance(error, HTTPError):
        error.close()  # it holds the connection
        return str(error)
    cause = getattr(error, "reason", error)
    return str(cause) or type(cause).__name__


def _is_published(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the archive; each file takes its place whole, so a killed run leaves no half file behind."""
    extract_archive = import_torchvision("torchvision.datasets.utils").extract_archive
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as scratch:
        extract_archive(str(archive), scratch)
        for file in Path(scratch).rglob("*"):
            if file.is_file():
                target = folder / file.relative_to(scratch)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
