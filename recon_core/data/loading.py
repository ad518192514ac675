"""From a `DataConfig` to the samples it asks for, and from a source to what a form says about it."""

from __future__ import annotations

from collections.abc import Callable

from recon_core.config import DataConfig, Source
from recon_core.data.embedded import EMBEDDED, read_embedded
from recon_core.data.image_folder import describe_folder, read_folder
from recon_core.data.image_npz import describe_npz, read_npz
from recon_core.data.planar import PLANAR, planar_task
from recon_core.data.registry import READERS, Reader
from recon_core.data.tasks import cut_task, plan_task
from recon_core.data.torchvision_sets import FULL_SETS, read_full
from recon_core.data.types import SourceInfo, TaskData
from recon_core.errors import InputError
from recon_core.observing import Listener
from recon_core.settings_text import LEFT_OUT


def load_task(config: DataConfig, *, progress: Listener | None = None, whole: bool = False) -> TaskData:
    """The samples `config` asks for, or an `InputError`; `whole`, every training image of its classes.

    Everything that can be checked without pixels is checked first, so that an impossible request downloads nothing.
    """
    reader = _reader(config.source, config.path)
    if reader.points is not None:
        return reader.points(config)
    assert reader.images is not None
    plan = plan_task(config, reader.describe(config.path).class_names)
    return cut_task(config, plan, reader.images(config, progress), whole=whole)


def describe_source(source: str, path: str | None = None) -> SourceInfo:
    """Classes, counts and shape of a source; `path` for the user's own. At most one image is read."""
    return _reader(source, path).describe(path)


def _reader(source: str, path: str | None) -> Reader:
    if path == LEFT_OUT:
        raise InputError(
            "these images were left out when the run was imported; attach your own with: "
            "python -m recon_core runs attach RUN PATH"
        )
    if source not in READERS:
        raise InputError(f"nothing here reads source {source!r}; there are {', '.join(READERS)}")
    return READERS[source]


def _needed(path: str | None, source: str) -> str:
    if path is None:
        raise InputError(f"source {source} needs path: the {source} to read, e.g. data.path=my_images")
    return path


def _fixed(info: SourceInfo) -> Callable[[str | None], SourceInfo]:
    return lambda _: info


for _name, _info in PLANAR.items():
    READERS[_name] = Reader(_fixed(_info), points=planar_task)
for _name, _info in EMBEDDED.items():
    READERS[_name] = Reader(_fixed(_info), lambda config, _: read_embedded(config.source))
for _name, _info in FULL_SETS.items():
    READERS[_name] = Reader(_fixed(_info), lambda config, progress: read_full(config.source, progress))
READERS[Source.FOLDER] = Reader(
    lambda path: describe_folder(_needed(path, Source.FOLDER)),
    lambda config, progress: read_folder(_needed(config.path, Source.FOLDER), progress),
)
READERS[Source.NPZ] = Reader(
    lambda path: describe_npz(_needed(path, Source.NPZ)),
    lambda config, _: read_npz(_needed(config.path, Source.NPZ)),
)
