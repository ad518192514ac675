"""Image sets that need no network: subsets of MNIST and CIFAR-10 in assets/, faces inside scikit-image."""

from __future__ import annotations

import numpy as np

from recon_core.config import Source
from recon_core.data.class_names import CIFAR10_CLASSES, FACE_CLASSES, MNIST_CLASSES
from recon_core.data.types import ImageSet, Pixels, SourceInfo, Split
from recon_core.errors import InputError
from recon_core.project_files import project_file

ASSETS = project_file("assets")

FACES_PER_KIND = 100
FACES_TRAIN_PER_KIND = 70

EMBEDDED: dict[str, SourceInfo] = {
    Source.MNIST: SourceInfo(
        "MNIST digits", MNIST_CLASSES, 2000, 1000, (1, 28, 28), "the first images of MNIST, in their order"
    ),
    Source.CIFAR10: SourceInfo(
        "CIFAR-10", CIFAR10_CLASSES, 1000, 500, (3, 32, 32), "the first images of CIFAR-10, in their order"
    ),
    Source.FACES: SourceInfo(
        "Faces", FACE_CLASSES, 140, 60, (1, 25, 25), "crops from Labeled Faces in the Wild and its backgrounds"
    ),
}


def read_embedded(source: str) -> ImageSet:
    """Read one of `EMBEDDED` whole."""
    if source == Source.FACES:
        return _faces()
    path = ASSETS / f"{source}_subset.npz"
    if not path.is_file():
        raise InputError(f"the embedded images {path} are missing; restore the assets folder of this project")
    with np.load(path, allow_pickle=False) as arrays:
        train, test = (
            Split(
                _channels_first(arrays[f"{part}_images"]),
                arrays[f"{part}_labels"].astype(np.int64),
                np.arange(len(arrays[f"{part}_labels"])),
            )
            for part in ("train", "test")
        )
    return ImageSet(train, test, EMBEDDED[source].class_names)


def _channels_first(images: Pixels) -> Pixels:
    """(N, H, W) or (N, H, W, C) -> (N, C, H, W)."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def _faces() -> ImageSet:
    """The first 70 faces and first 70 non-faces to train on, the last 30 of each to test on; ids count all 200."""
    from skimage.data import lfw_subset

    images = np.asarray(lfw_subset(), dtype=np.float32)[:, None]  # type: ignore[no-untyped-call]
    face = FACE_CLASSES.index("face")
    ids = np.arange(len(images))
    labels = np.where(ids < FACES_PER_KIND, face, 1 - face)
    to_train = ids % FACES_PER_KIND < FACES_TRAIN_PER_KIND
    train, test = (Split(images[part], labels[part], ids[part]) for part in (to_train, ~to_train))
    return ImageSet(train, test, FACE_CLASSES)
