"""Tasks cut out of the embedded sets: who is chosen, what is subtracted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recon_core.config import DataConfig, Source, Task
from recon_core.data import PARTITIONS, describe_source, load_task, signs_of
from recon_core.data.embedded import ASSETS
from recon_core.data.tasks import balanced, balanced_test
from recon_core.errors import InputError

VEHICLES = (0, 1, 8, 9)


def _raw(source: str) -> dict[str, np.ndarray]:
    with np.load(ASSETS / f"{source}_subset.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def test_cifar_default_is_the_papers_task() -> None:
    """The first 25 vehicles and first 25 animals, in dataset order, worked out here by a plain loop."""
    raw = _raw("cifar10")
    expected: list[int] = []
    counts = [0, 0]
    for position, label in enumerate(raw["train_labels"]):
        side = int(label not in VEHICLES)
        if counts[side] < 25:
            counts[side] += 1
            expected.append(position)
    data = load_task(DataConfig())
    assert data.train_ids.tolist() == expected
    assert data.train_labels.tolist() == [int(raw["train_labels"][i] not in VEHICLES) for i in expected]
    assert data.class_names == ("vehicles", "animals")
    assert (data.n, data.input_shape, data.outputs) == (50, (3, 32, 32), 1)


def test_mean_is_of_the_training_images_and_subtracted_from_both() -> None:
    raw = _raw("cifar10")
    data = load_task(DataConfig(n=10))
    pictures = raw["train_images"][data.train_ids.numpy()].transpose(0, 3, 1, 2) / 255
    torch.testing.assert_close(data.mean, torch.from_numpy(pictures.mean(0)).float())
    torch.testing.assert_close(data.train_x + data.mean, torch.from_numpy(pictures).float())
    test = raw["test_images"][data.test_ids.numpy()].transpose(0, 3, 1, 2) / 255
    torch.testing.assert_close(data.test_x + data.mean, torch.from_numpy(test).float())
    for tensor in (data.train_x, data.test_x, data.mean):
        assert tensor.dtype == torch.float32
        assert tensor.is_contiguous()


def test_test_set_is_balanced_and_as_large_as_it_can_be() -> None:
    labels = _raw("cifar10")["test_labels"]
    vehicles = int(np.isin(labels, VEHICLES).sum())
    data = load_task(DataConfig())
    assert torch.bincount(data.test_labels).tolist() == [vehicles, vehicles]
    assert torch.bincount(load_task(DataConfig(test_n=21)).test_labels).tolist() == [10, 10]


def test_mnist_default_is_odd_against_even() -> None:
    data = load_task(DataConfig(source=Source.MNIST, n=20))
    digits = _raw("mnist")["train_labels"][data.train_ids.numpy()]
    assert data.train_labels.tolist() == (digits % 2).tolist()
    assert data.class_names == ("even", "odd")
    assert data.signs.tolist() == [1.0 if digit % 2 else -1.0 for digit in digits]


def test_faces_are_positive_and_the_test_faces_are_others() -> None:
    data = load_task(DataConfig(source=Source.FACES, n=140))
    assert data.train_labels.tolist() == [int(i < 100) for i in data.train_ids.tolist()]
    assert data.test_labels.tolist() == [int(i < 100) for i in data.test_ids.tolist()]
    assert sorted(data.train_ids.tolist() + data.test_ids.tolist()) == list(range(200))
    assert data.test_labels.sum() == 30
    assert data.input_shape == (1, 25, 25)


def test_multiclass_takes_k_of_each_class_in_the_order_named() -> None:
    data = load_task(
        DataConfig(source=Source.CIFAR10, task=Task.MULTICLASS, classes=("dog", "0", "ship"), per_class=4, test_n=9)
    )
    assert data.class_names == ("dog", "airplane", "ship")
    assert data.outputs == 3
    original = _raw("cifar10")["train_labels"][data.train_ids.numpy()]
    assert [{5: 0, 0: 1, 8: 2}[int(label)] for label in original] == data.train_labels.tolist()
    assert torch.bincount(data.train_labels).tolist() == [4, 4, 4]
    assert torch.bincount(data.test_labels).tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="multiclass"):
        _ = data.signs


def test_multiclass_default_is_five_of_every_class() -> None:
    data = load_task(DataConfig(source=Source.MNIST, task=Task.MULTICLASS))
    assert torch.bincount(data.train_labels).tolist() == [5] * 10


def test_regression_selects_as_binary_does() -> None:
    binary = load_task(DataConfig(n=10))
    regression = load_task(DataConfig(n=10, task=Task.REGRESSION))
    assert regression.fingerprint == binary.fingerprint
    assert regression.outputs == 1


@pytest.mark.parametrize("text", ["cat,dog|ship,truck", "3,5|8,9", " cat , 5 | 8 ,truck "])
def test_custom_partition_by_name_or_number(text: str) -> None:
    data = load_task(DataConfig(partition=text, n=20))
    assert data.class_names == ("cat, dog", "ship, truck")
    original = _raw("cifar10")["train_labels"][data.train_ids.numpy()]
    assert data.train_labels.tolist() == [int(label in (8, 9)) for label in original]


def test_odd_even_goes_by_number_where_classes_have_words_for_names() -> None:
    data = load_task(DataConfig(partition="odd-even", n=20))
    original = _raw("cifar10")["train_labels"][data.train_ids.numpy()]
    assert data.train_labels.tolist() == (original % 2).tolist()


def test_seeded_selection_repeats_differs_by_seed_and_grows_by_adding() -> None:
    def ids(n: int, seed: int) -> list[int]:
        chosen: list[int] = load_task(
            DataConfig(source=Source.MNIST, n=n, selection="seeded", seed=seed)
        ).train_ids.tolist()
        return chosen

    assert ids(20, 1) == ids(20, 1) != ids(20, 2)
    assert set(ids(20, 1)) < set(ids(40, 1))
    assert ids(20, 1) == sorted(ids(20, 1))
    assert torch.bincount(load_task(DataConfig(n=20, selection="seeded")).train_labels).tolist() == [10, 10]


def test_fingerprint_tells_training_sets_apart_and_ignores_the_test_set() -> None:
    one = load_task(DataConfig(n=10)).fingerprint
    assert load_task(DataConfig(n=10, test_n=4)).fingerprint == one
    assert load_task(DataConfig(n=12)).fingerprint != one
    swapped = load_task(DataConfig(n=10, partition="2,3,4,5,6,7|0,1,8,9"))
    assert swapped.fingerprint != one
    assert len(one) == 64


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=60), st.integers(0, 5), st.integers(0, 10**6) | st.none())
def test_balanced_gives_equal_counts_in_order(sides: list[int], per_side: int, seed: int | None) -> None:
    array = np.array(sides, dtype=np.int64)
    per_side = min(per_side, *(sides.count(side) for side in range(3)))
    chosen = balanced(array, 3, per_side, None if seed is None else np.random.default_rng(seed))
    assert (np.diff(chosen) > 0).all()
    assert [int((array[chosen] == side).sum()) for side in range(3)] == [per_side] * 3
    assert len(balanced_test(array, 3, None)) == 3 * min(sides.count(side) for side in range(3))


def test_signs() -> None:
    assert signs_of(torch.tensor([0, 1, 1, 0])).tolist() == [-1.0, 1.0, 1.0, -1.0]


REFUSED = [
    ({"n": 51}, ["n=51", "n=50 or n=52"]),
    ({"source": "circle", "n": 7}, ["n=7", "n=6 or n=8"]),
    ({"task": "regression", "n": 3}, ["n=3", "n=2 or n=4"]),
    ({"task": "multiclass", "n": 25}, ["n=25", "10 classes", "n=20 or n=30"]),
    ({"task": "multiclass", "n": 3}, ["n=3", "use n=10"]),
    ({"n": 2000}, ["n=2000", "'vehicles'", "416", "n=832", "cifar10-full"]),
    ({"per_class": 500}, ["per_class=500", "416", "per_class=416"]),
    ({"task": "multiclass", "source": "mnist", "per_class": 300}, ["per_class=300", "'8'", "172", "mnist-full"]),
    ({"source": "faces", "n": 200}, ["n=200", "70", "n=140"]),
    ({"source": "circle", "n": 10_002}, ["n=10002", "10000"]),
    ({"task": "multiclass", "classes": ("3",)}, ["'3'", "one class only", "at least two"]),
    ({"task": "multiclass", "classes": ("cat", "3")}, ["'cat' twice"]),
    ({"task": "multiclass", "classes": ("cat", "lion")}, ["'lion'", "airplane", "truck"]),
    ({"task": "multiclass", "classes": ("cat", "10")}, ["'10'", "airplane"]),
    ({"partition": "cats-dogs"}, ["'cats-dogs'", *PARTITIONS, "a,b|c,d"]),
    ({"partition": "cat|dog|ship"}, ["'cat|dog|ship'", "a,b|c,d"]),
    ({"partition": "cat|"}, ["'cat|'", "positive side"]),
    ({"partition": ",|cat"}, ["negative side"]),
    ({"partition": "cat,dog|dog"}, ["'dog' twice"]),
    ({"partition": "cat|lion"}, ["'lion'"]),
    ({"source": "mnist", "partition": "animals-vehicles"}, ["animals-vehicles", "'airplane'", "odd-even"]),
    ({"source": "cifar10", "partition": "faces"}, ["faces", "'non-face'"]),
    ({"source": "fashion-mnist"}, ["fashion-mnist", "data.partition", "odd-even"]),
    ({"source": "cifar100"}, ["100 classes", "data.partition", "100 in all"]),
    ({"task": "multiclass", "partition": "odd-even"}, ["'odd-even'", "data.classes"]),
    ({"classes": ("cat", "dog")}, ["'cat,dog'", "data.partition"]),
    ({"source": "circle", "partition": "odd-even"}, ["partition", "circle"]),
    ({"radius_noise": 0.1}, ["radius_noise=0.1", "circle"]),
    ({"labels": "random"}, ["labels=random", "circle"]),
    ({"task": "multiclass", "test_n": 5}, ["test_n=5", "10 classes", "test_n=10"]),
    ({"source": "spiral", "labels": "arcs"}, ["arcs", "spiral", "random"]),
]


@pytest.mark.parametrize(("settings", "said"), REFUSED)
def test_refused_in_one_sentence(settings: dict[str, object], said: list[str]) -> None:
    with pytest.raises(InputError) as refusal:
        load_task(DataConfig(**settings))  # type: ignore[arg-type]
    for words in said:
        assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("source", [Source(name) for name in Source.names() if not Source(name).needs_path])
def test_every_source_without_a_path_is_described(source: Source) -> None:
    info = describe_source(source)
    assert len(info.class_names) >= 2
    assert info.train_n > 0
    assert info.test_n > 0
    assert info.shape
    assert info.name
    assert info.note


@pytest.mark.parametrize("source", [Source.MNIST, Source.CIFAR10, Source.FACES])
def test_descriptions_of_embedded_sets_are_true(source: Source) -> None:
    from recon_core.data.embedded import read_embedded

    info, images = describe_source(source), read_embedded(source)
    assert images.test is not None
    assert images.train.images.shape == (info.train_n, *info.shape)
    assert images.test.images.shape == (info.test_n, *info.shape)
    assert images.train.labels.max() + 1 == len(info.class_names)


def test_own_sources_need_a_path() -> None:
    with pytest.raises(InputError, match="needs path"):
        describe_source(Source.FOLDER)
