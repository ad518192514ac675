"""Samples for a training run: `load_task` turns a `DataConfig` into one `TaskData`.

source (planar, embedded, full sets, the user's own) -> `ImageSet` -> task cut out of it -> `TaskData`
"""

from recon_core.data.loading import describe_source, load_task
from recon_core.data.registry import Reader, register_source
from recon_core.data.tasks import PARTITIONS, task_classes
from recon_core.data.torchvision_import import import_torchvision
from recon_core.data.types import SourceInfo, TaskData, signs_of

__all__ = [
    "PARTITIONS",
    "Reader",
    "SourceInfo",
    "TaskData",
    "describe_source",
    "import_torchvision",
    "load_task",
    "register_source",
    "signs_of",
    "task_classes",
]
