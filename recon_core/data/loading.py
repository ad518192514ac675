"""From a `DataConfig` to the samples it asks for, and from a source to what a form says about it."""

from __future__ import annotations

from recon_core.config import DataConfig, Source
from recon_core.data.embedded import EMBEDDED, read_embedded
from recon_core.data.image_folder import describe_folder, read_folder
from recon_core.data.image_npz import describe_npz, read_npz
from recon_core.data.planar import CLASS_NAMES, MAX_POINTS, planar_task
from recon_core.data.tasks import cut_task, plan_task
from recon_core.data.torchvision_sets import FULL_SETS, read_full
from recon_core.data.types import ImageSet, Progress, SourceInfo, TaskData
from recon_core.errors import InputError

_PLANAR: dict[Source, str] = {
    Source.CIRCLE: "points at equal angles on the unit circle",
    Source.SPIRAL: "two arms of one turn each",
    Source.CHESSBOARD: "4 x 4 squares",
}


def load_task(config: DataConfig, *, progress: Progress | None = None) -> TaskData:
    """The samples `config` asks for, or an `InputError`.

    What can be said without pixels is said first: a request that cannot be met downloads nothing.
    """
    if config.source.planar:
        return planar_task(config)
    plan = plan_task(config, describe_source(config.source, config.path).class_names)
    return cut_task(config, plan, _read(config, progress))


def describe_source(source: Source, path: str | None = None) -> SourceInfo:
    """Classes, counts and shape of a source; `path` for the user's own. Pixels are read of one image at most."""
    if source in _PLANAR:
        return SourceInfo(source.value.capitalize(), CLASS_NAMES, MAX_POINTS, 2 * MAX_POINTS, (2,), _PLANAR[source])
    if source in EMBEDDED:
        return EMBEDDED[source]
    if source in FULL_SETS:
        return FULL_SETS[source]
    if path is None:
        raise InputError(f"source {source} needs path: the {source} to read, e.g. data.path=my_images")
    return describe_folder(path) if source is Source.FOLDER else describe_npz(path)


def _read(config: DataConfig, progress: Progress | None) -> ImageSet:
    if config.source in EMBEDDED:
        return read_embedded(config.source)
    if config.source in FULL_SETS:
        return read_full(config.source, progress)
    if config.path is None:
        raise InputError(f"source {config.source} needs path: the {config.source} to read")
    return read_folder(config.path, progress) if config.source is Source.FOLDER else read_npz(config.path)
