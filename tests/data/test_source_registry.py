"""A source of samples is one call: settings, messages, the form and `load_data` know it from there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import recon_core as rc
from recon_core.config import DataConfig, Source, parse_config
from recon_core.data import Reader, SourceInfo, describe_source, load_task, register_source
from recon_core.data.registry import READERS
from recon_core.data.types import ImageSet, Split
from recon_core.errors import InputError
from recon_core.observing import Listener
from recon_core.sources import SOURCES, SourceKind
from ui.shared.forms import _choices

GREYS = SourceInfo("Greys", ("dark", "light"), 20, 0, (1, 2, 2), "patches of one grey each")


def _read(config: DataConfig, progress: Listener | None) -> ImageSet:
    values = np.linspace(0, 1, 20, dtype=np.float32)
    images = np.broadcast_to(values[:, None, None, None], (20, 1, 2, 2))
    return ImageSet(Split(images, (values > 0.5).astype(np.int64), np.arange(20)), None, GREYS.class_names)


@pytest.fixture
def toy() -> Iterator[Source]:
    yield register_source(SourceKind("greys"), Reader(lambda path: GREYS, _read))
    del SOURCES["greys"], READERS["greys"]


def test_every_source_is_read_by_somebody() -> None:
    assert set(READERS) == set(SOURCES)


@pytest.mark.usefixtures("toy")
def test_a_new_source_is_described_and_read() -> None:
    config = parse_config(DataConfig, {"source": "greys", "n": 6})
    assert DataConfig.model_validate_json(config.model_dump_json()) == config
    assert not config.source.planar
    assert describe_source(config.source) == GREYS
    data = load_task(config)
    assert (data.n, data.class_names, data.input_shape) == (6, ("dark", "light"), (1, 2, 2))
    assert rc.load_data("greys", n=6).samples.fingerprint == data.fingerprint


@pytest.mark.usefixtures("toy")
def test_messages_and_the_form_list_it() -> None:
    assert _choices(DataConfig.model_fields["source"].annotation)[-1] == "greys"
    with pytest.raises(InputError, match=r"source must be 'circle', .* 'npz' or 'greys', got 'grays'"):
        parse_config(DataConfig, {"source": "grays"})


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there is a source 'mnist' already"):
        register_source(SourceKind("mnist"), Reader(lambda path: GREYS, _read))
