"""What a training run is asked to do, checked once, here, before anything is written or computed.

Every field has a default that makes sense on a laptop. Unknown keys and values out of range become
one sentence (`InputError`) that names the value and the fix; see `parse_config`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from recon_core.errors import InputError
from recon_core.losses import LOSSES, LossName, losses_of
from recon_core.losses import Task as Task
from recon_core.sources import SOURCES
from recon_core.sources import Source as Source


class PlanarLabels(StrEnum):
    ALTERNATING = "alternating"
    RANDOM = "random"
    ARCS = "arcs"


class Selection(StrEnum):
    FIRST = "first"
    SEEDED = "seeded"


class BiasMode(StrEnum):
    """Which layers carry a bias. Only `first` and `none` keep the network homogeneous."""

    FIRST = "first"
    HIDDEN = "hidden"
    NONE = "none"


class Recipe(StrEnum):
    DPSGD = "dpsgd"
    FLOW = "flow"
    PAPER = "paper"
    SGD = "sgd"
    STATIONARY = "stationary"


class Augmentation(StrEnum):
    """How training images are changed at random, each time they are seen."""

    NONE = "none"
    FLIP = "flip"
    FLIP_SHIFT = "flip-shift"


def _split(value: Any) -> Any:
    """Lists may be written as on a command line: 1000,500,100 or a single value."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return (value,) if isinstance(value, int) else value


T = TypeVar("T")
Listed = Annotated[tuple[T, ...], BeforeValidator(_split)]


class Frozen(BaseModel):
    """Settings are values: checked when made, equal when alike, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """All that values may hold; more than the class's own where a value decides on a subclass."""
        return tuple(cls.model_fields)


class DataConfig(Frozen):
    """Which samples, how many, and how their classes become a task.

    `n` counts all training samples, `per_class` those of one class (or one side of a binary
    partition); give one of them. A balanced draw takes equally many from each class.
    """

    source: Source = Field(Source.CIFAR10, description="the data set; those ending in -full are downloaded")
    path: str | None = Field(None, description="folder or .npz file with images of one's own")
    task: Task = Field(
        Task.BINARY, description="binary or multiclass classification, or regression on labels of -1 and 1"
    )
    n: int | None = Field(None, ge=2, description="number of training samples")
    per_class: int | None = Field(None, ge=1, description="number of training samples of each class")
    partition: str | None = Field(
        None,
        description="odd-even, animals-vehicles, faces, or 'a,b|c,d': classes of the negative | the positive side",
    )
    classes: Listed[str] | None = Field(None, description="names or numbers of the classes of a multiclass task")
    selection: Selection = Field(
        Selection.FIRST, description="the first samples of each class, or a random draw by the data seed"
    )
    seed: int = Field(0, ge=0, description="seed of the random selection, of planar noise and of random labels")
    labels: PlanarLabels = Field(PlanarLabels.ALTERNATING, description="how the points of a planar set are labelled")
    radius_noise: float = Field(
        0.0, ge=0.0, le=1.0, description="standard deviation of the radius of the points of a planar set"
    )
    test_n: int | None = Field(None, ge=2, description="number of test samples at most; all if unset")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n is not None and self.per_class is not None:
            raise ValueError(f"give either n or per_class, not both (got n={self.n} and per_class={self.per_class})")
        if self.source.needs_path and not self.path:
            raise ValueError(f"source {self.source} needs path: the {self.source} to read, e.g. data.path=my_images")
        if self.path and not self.source.needs_path:
            fitting = " or ".join(name for name, kind in SOURCES.items() if kind.needs_path)
            raise ValueError(f"path {self.path!r} only goes with source {fitting}, got source {self.source}")
        if self.source.planar and self.task is Task.MULTICLASS:
            raise ValueError(f"source {self.source} has two classes; task multiclass needs three or more")
        return self


class ModelConfig(Frozen):
    """Architecture and initialisation. A convolution, where given, comes before the dense layers."""

    widths: Listed[int] = Field((1000, 1000), description="neurons in each hidden layer, e.g. 1000,1000")
    conv_kernel: int | None = Field(
        None, ge=1, description="kernel size k of a convolution CONV(k, C) before the dense layers; none if unset"
    )
    conv_channels: int | None = Field(None, ge=1, description="output channels C of that convolution")
    bias: BiasMode = Field(BiasMode.FIRST, description="which layers have a bias: the first, all hidden ones, or none")
    init_scale: float | Literal["kaiming"] = Field(
        1e-4, description="standard deviation of the first layer's initial weights, or kaiming for PyTorch's default"
    )
    dense_init_scale: float | Literal["kaiming"] = Field(
        "kaiming",
        description="the same of the first dense layer behind a convolution, whose rows hold the samples' activations",
    )
    seed: int = Field(0, ge=0, description="seed of the initial weights")
    dtype: Literal["float32", "float64"] = Field("float32", description="precision of the weights and of training")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.widths:
            raise ValueError("widths must name at least one hidden layer, got none; e.g. model.widths=1000,1000")
        for width in self.widths:
            if width < 1:
                raise ValueError(f"widths must all be at least 1, got {width}")
        if (self.conv_kernel is None) != (self.conv_channels is None):
            raise ValueError(
                "conv_kernel and conv_channels go together, "
                f"got conv_kernel={self.conv_kernel} and conv_channels={self.conv_channels}"
            )
        if self.init_scale != "kaiming" and self.init_scale <= 0:
            raise ValueError(f"init_scale must be > 0 or 'kaiming', got {self.init_scale}")
        if self.dense_init_scale != "kaiming":
            if self.dense_init_scale <= 0:
                raise ValueError(f"dense_init_scale must be > 0 or 'kaiming', got {self.dense_init_scale}")
            if self.conv_kernel is None:
                raise ValueError(
                    f"dense_init_scale={self.dense_init_scale} needs a convolution in front; "
                    "without one the first layer has init_scale"
                )
        return self


class TrainingConfig(Frozen):
    """How the loss is driven down, and when to stop. Whatever stop is met first ends the run.

    Left out, `recipe` is flow for a classifier without decay, stationary with decay, paper otherwise.
    """

    recipe: Recipe = Field(
        Recipe.FLOW,
        description="flow: gradient flow in few steps, for classifiers; stationary: to a stationary point under weight "
        "decay; paper: full-batch gradient descent; sgd: mini-batches; dpsgd: mini-batches with differential privacy",
    )
    loss: LossName = Field(LossName("logistic"), description="the loss function; follows from the task if unset")
    weight_decay: float = Field(0.0, ge=0.0, description="lambda in mean loss + lambda/2 |theta|^2")
    huber_delta: float = Field(1.0, gt=0.0, description="where the Huber loss turns from quadratic to linear")
    learning_rate: float | None = Field(
        None, gt=0.0, description="step size of gradient descent; if unset, 0.01, or 0.5 for multiclass tasks"
    )
    batch_size: int = Field(50, ge=1, description="samples in a mini-batch; for dpsgd, on average")
    label_smoothing: float = Field(
        0.0, ge=0.0, lt=1.0, description="share of each label that is spread evenly over all classes"
    )
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="probability that a hidden neuron is left out of a step")
    augmentation: Augmentation = Field(
        Augmentation.NONE, description="flip: images are mirrored at random; flip-shift: also moved by up to 4 pixels"
    )
    epsilon: float | None = Field(
        None, gt=0.0, description="privacy budget of dpsgd: the noise is chosen so that all epochs spend this much"
    )
    delta: float = Field(1e-3, gt=0.0, lt=1.0, description="probability with which dpsgd may break its epsilon")
    clip_norm: float = Field(1.0, gt=0.0, description="norm to which dpsgd clips the gradient of each sample")
    epochs: int | None = Field(
        None, ge=1, description="stop after so many steps; for sgd and dpsgd, passes over the data"
    )
    target_loss: float | None = Field(None, gt=0.0, description="stop at this mean loss, e.g. 1e-6")
    target_log_loss: float | None = Field(
        None,
        lt=0.0,
        description="stop at this natural logarithm of the mean loss, e.g. -1000, which is a log10 loss of -434",
    )
    target_residual: float | None = Field(
        None, gt=0.0, lt=1.0, description="stop at this relative gradient norm (decay) or layer-1 KKT residual (none)"
    )
    max_seconds: float | None = Field(None, gt=0.0, description="stop after so many seconds")
    max_change: float = Field(0.1, gt=0.0, le=1.0, description="relative change of a layer in one step, at most")
    measure_every: int | None = Field(None, ge=1, description="steps between measurements")
    record_every: int | None = Field(None, ge=1, description="steps between recordings of the output on the plane")

    @model_validator(mode="before")
    @classmethod
    def _choose_recipe(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("recipe") is not None:
            return values
        loss = next((known for name, known in LOSSES.items() if name == values.get("loss", "logistic")), None)
        decays = _is_positive(values.get("weight_decay", 0))
        recipe = Recipe.STATIONARY if decays else Recipe.FLOW if loss is not None and loss.log_form else Recipe.PAPER
        return {**values, "recipe": recipe}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.recipe is Recipe.FLOW and not self.loss.function.log_form:
            raise ValueError(
                f"recipe flow follows the margin of a classifier, got loss {self.loss}; use stationary, paper or sgd"
            )
        if self.recipe is Recipe.FLOW and self.weight_decay > 0:
            raise ValueError(
                f"recipe flow has no weight decay, got weight_decay={self.weight_decay}; use recipe stationary"
            )
        if self.recipe is Recipe.STATIONARY and self.weight_decay == 0:
            raise ValueError("recipe stationary needs weight_decay > 0, got 0; use recipe flow without decay")
        self._check_stochastic()
        if self.target_loss is not None and self.target_log_loss is not None:
            raise ValueError(
                f"give target_loss or target_log_loss, not both (got {self.target_loss} and {self.target_log_loss})"
            )
        stops = (self.epochs, self.log_target, self.target_residual, self.max_seconds)
        if self.recipe is not Recipe.STATIONARY and all(stop is None for stop in stops):
            raise ValueError(
                f"recipe {self.recipe} needs a stop: set epochs, target_loss, target_log_loss, target_residual "
                "or max_seconds"
            )
        return self

    def _check_stochastic(self) -> None:
        """What only some recipes do."""
        if self.label_smoothing and not self.loss.function.classifies:
            raise ValueError(f"label_smoothing is for classifiers, got loss {self.loss}; leave it out")
        for name, usual in (("label_smoothing", 0.0), ("dropout", 0.0), ("augmentation", Augmentation.NONE)):
            if getattr(self, name) != usual and self.recipe not in (Recipe.PAPER, Recipe.SGD):
                raise ValueError(f"{name} goes with recipe sgd or paper, got recipe {self.recipe}")
        if self.recipe is not Recipe.DPSGD:
            if self.epsilon is not None:
                raise ValueError(f"epsilon goes with recipe dpsgd, got recipe {self.recipe}")
            return
        if self.epsilon is None or self.epochs is None:
            raise ValueError("recipe dpsgd needs epsilon and epochs, from which its noise follows; e.g. epsilon=8")
        if self.log_target is not None or self.target_residual is not None:
            raise ValueError("recipe dpsgd cannot stop at a loss or residual, which would tell of the data; use epochs")

    @property
    def log_target(self) -> float | None:
        """The target loss as a natural logarithm, however it was given."""
        return self.target_log_loss if self.target_loss is None else math.log(self.target_loss)


class ReleaseConfig(Frozen):
    """What is done to the trained weights before anybody sees them, in this order."""

    pruned: float = Field(0.0, ge=0.0, lt=1.0, description="share of each layer's smallest weights that is set to 0")
    noise: float = Field(
        0.0, ge=0.0, description="standard deviation of noise on the weights, relative to that of their layer"
    )
    bits: int | None = Field(None, ge=2, le=16, description="bits to which the weights of each layer are rounded")

    @property
    def changes(self) -> bool:
        return self != ReleaseConfig()


class TrainConfig(Frozen):
    """One training run, whole."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig
    release: ReleaseConfig = ReleaseConfig()
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="auto takes a GPU where there is one")

    @model_validator(mode="before")
    @classmethod
    def _choose_loss(cls, values: Any) -> Any:
        """A loss left out follows from the task."""
        if not isinstance(values, Mapping):
            return values
        data, training = values.get("data", {}), values.get("training", {})
        if not isinstance(data, Mapping) or not isinstance(training, Mapping) or "loss" in training:
            return values
        task = data.get("task", Task.BINARY)
        fitting = losses_of(task) if isinstance(task, str) else ()
        return {**values, "training": {**training, "loss": fitting[0]}} if fitting else values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        loss, task = self.training.loss, self.data.task
        if loss not in losses_of(task):
            raise ValueError(f"task {task} goes with loss {' or '.join(losses_of(task))}, got {loss}")
        if self.training.augmentation is not Augmentation.NONE and self.data.source.planar:
            raise ValueError(f"augmentation {self.training.augmentation} is for images, got source {self.data.source}")
        if self.model.conv_kernel is not None and self.data.source.planar:
            raise ValueError(f"a convolution needs images, got source {self.data.source}")
        return self


def _is_positive(value: Any) -> bool:
    """Of a setting that is yet to be checked; it may be text, as on a command line."""
    try:
        return float(value) > 0
    except (TypeError, ValueError):
        return False


C = TypeVar("C", bound=BaseModel)

_SHOWN_LENGTH = 80
_SENTENCE_LENGTH = 500


def parse_config(kind: type[C], values: Mapping[str, Any]) -> C:
    """Check `values` against `kind`; the first fault becomes one sentence naming key, value and fix."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(_sentence(kind, error)) from None


def _sentence(kind: type[BaseModel], error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    if fault["type"] == "extra_forbidden":
        level = _level(kind, fault["loc"][:-1])
        key = ".".join(map(str, fault["loc"]))
        return f"unknown key {_shown(key)}; known here: {', '.join(level.model_fields)}"
    # Positions in a list and members of a union follow the field's name; only the name helps.
    fields = [part for depth, part in enumerate(fault["loc"]) if _is_field(kind, fault["loc"][: depth + 1])]
    key = ".".join(map(str, fields))
    message = _one_line(fault["msg"].removeprefix("Value error, "))
    if fault["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if fault["type"] == "missing":
        return f"{key} is missing"
    return f"{key} must be {requirement(message)}, got {_shown(fault['input'])}"


def requirement(message: str) -> str:
    """What pydantic asks of a value, without the reason why it was refused: 'a valid integer'."""
    return message.removeprefix("Input should be ").partition(", unable to parse")[0]


def _shown(value: object) -> str:
    """A value as one would type it, cut where it is long; what is between may be anybody's."""
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SENTENCE_LENGTH]


def _level(kind: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The settings group that `path` leads to."""
    for part in path:
        annotation = kind.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            raise KeyError(part)
        kind = annotation
    return kind


def _is_field(kind: type[BaseModel], path: tuple[int | str, ...]) -> bool:
    try:
        level = _level(kind, path[:-1])
        return str(path[-1]) in (level.field_names() if issubclass(level, Frozen) else level.model_fields)
    except KeyError:
        return False


def assign(kind: type[BaseModel], values: dict[str, Any], assignment: str) -> None:
    """Put `key=value` into nested `values`. The group may be left out where the key is unique: n=100 is data.n=100.

    none and null take back what `values` holds, unless they are values of that field.
    """
    key, equals, text = assignment.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"settings are written key=value, got {assignment!r}; e.g. --set data.n=100")
    path = key.split(".")
    if len(path) == 1 and key not in kind.model_fields:
        homes = [name for name in _groups(kind) if key in _level(kind, (name,)).model_fields]
        if len(homes) > 1:
            raise InputError(f"{key!r} could be {' or '.join(f'{home}.{key}' for home in homes)}; write one of them")
        path = [*homes, key]
    node = values
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise InputError(f"unknown key {key!r}; {part!r} is a single value")
    text = text.strip()
    unset = text.lower() in ("none", "null") and text.lower() not in _words(kind, tuple(path))
    node[path[-1]] = None if unset else text


def _words(kind: type[BaseModel], path: tuple[str, ...]) -> set[str]:
    """The values of a field that are words of its own, as `none` is for model.bias."""
    if not _is_field(kind, path):
        return set()
    field = _level(kind, path[:-1]).model_fields.get(path[-1])
    waiting: list[Any] = [] if field is None else [field.annotation]
    found: set[str] = set()
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, StrEnum):
            found |= {member.value for member in annotation}
        elif isinstance(annotation, str):
            found.add(annotation)
        else:
            waiting += get_args(annotation)
    return found


def _groups(kind: type[BaseModel]) -> list[str]:
    return [name for name, field in kind.model_fields.items() if _is_group(field.annotation)]


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def assignments(config: BaseModel, prefix: str = "") -> list[str]:
    """The `key=value` list that makes this config from nothing: every value that is not its default."""
    found = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            found += assignments(value, f"{prefix}{name}.")
        elif value != field.get_default() or name in ("recipe", "loss"):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            found.append(f"{prefix}{name}={text}")
    return found
