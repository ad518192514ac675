"""The plan of a study: base settings, the values of an axis, panels side by side, dashed references, seeds."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from recon_core.config import Frozen
from recon_core.errors import InputError
from recon_core.runs.stored_names import with_current_settings
from recon_core.store.ids import checked_name
from recon_core.studies.settings import checked

MOST_CELLS = 5000
MOST_SEEDS = 100


class Scale(StrEnum):
    """How the axis is laid out."""

    LOG = "log"
    LINEAR = "linear"
    CATEGORY = "category"


class Check(StrEnum):
    """The ways to check a paper's claim; see `recon_core.studies.claims`."""

    RISES_SOMEWHERE = "some values raise the count above that of the first"
    FALLS_SOMEWHERE = "some values lower the count below that of the first"
    MARGIN_RISES_TOO = "where the count is highest, more samples sit on the margin than at the first value"
    GROWS = "the count grows along the axis"
    FALLS = "the count falls along the axis"
    SHARE_FALLS = "the share of images that come back falls along the axis"
    SOME_EVERYWHERE = "images come back at every value"
    BELOW_REFERENCE = "fewer images come back than at the reference"
    REFERENCE_FAILS = "at the reference nothing comes back beyond chance"
    TEST_ERROR_STEADY = "the test error hardly changes along the axis"
    TEST_ERROR_FALLS = "the test error falls along the axis"

    @classmethod
    def _missing_(cls, value: object) -> Check | None:
        """Read a value as studies stored it before 0.2.0."""
        return cls.REFERENCE_FAILS if value == "at the reference nothing comes back beyond its floors" else None


class PaperClaim(Frozen):
    """What a paper says of this experiment, in our words, and how it is checked."""

    text: str
    check: Check


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    return checked(values)


SettingsField = Annotated[dict[str, Any], AfterValidator(_settings)]


class Variant(Frozen):
    """Settings under a name: a value of the axis, a panel, or a reference.

    `position` is where a value stands on a numeric axis; without one it stands apart, left of the others.
    """

    label: str = Field(max_length=80)
    settings: SettingsField = Field(default_factory=dict)
    position: float | None = None
    group: str = Field("", max_length=60, description="what kind of value it is, where there are several")
    about: str = Field("", max_length=400, description="what it is, for somebody who has not heard of it")


_TEXTS = {"title", "where", "about", "axis", "claims"}


class StudyPlan(Frozen):
    """A complete study: everything needed to repeat it, even if the catalogue changes."""

    name: str = Field(max_length=60, pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = Field(max_length=120)
    where: str = Field("own study", description="the paper's figures and tables")
    size: str = "own"
    about: str = Field("", description="what is done, in a sentence or two")
    axis: str = Field(description="what varies, as the axis is called")
    scale: Scale = Scale.CATEGORY
    points: tuple[Variant, ...]
    panels: tuple[Variant, ...] = (Variant(label=""),)
    overlay: bool = Field(False, description="draw the panels as lines of one figure")
    references: tuple[Variant, ...] = ()
    base: SettingsField = Field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    untrained_control: bool = Field(
        True, description="attack an untrained network of each architecture as well, for the chance level"
    )
    kernels: bool = Field(False, description="show the first layer's kernels as images")
    defences: bool = Field(
        False, description="the values are defences and the first is none: draw leak against accuracy"
    )
    claims: tuple[PaperClaim, ...] = ()

    _read_old_names = model_validator(mode="before")(with_current_settings)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        checked_name(self.title)
        for what, variants in (("points", self.points), ("panels", self.panels), ("references", self.references)):
            labels = [variant.label for variant in variants]
            twice = [label for label in labels if labels.count(label) > 1]
            if twice:
                raise ValueError(f"{what} has {twice[0]!r} twice; give each its own label")
        if not self.points or not self.panels or not self.seeds:
            raise ValueError("a study needs at least 1 value, 1 panel and 1 seed")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers from 0 on, got {', '.join(map(str, self.seeds))}")
        if len(self.seeds) > MOST_SEEDS:
            raise ValueError(f"at most {MOST_SEEDS} seeds, got {len(self.seeds)}")
        if self.size_in_cells > MOST_CELLS:
            raise ValueError(
                f"that is {self.size_in_cells} models; a study has at most {MOST_CELLS}, vary less at once"
            )
        if self.scale is Scale.LOG:
            for point in self.points:
                if point.position is not None and not (point.position > 0 and math.isfinite(point.position)):
                    raise ValueError(f"a logarithmic axis needs positions above 0, got {point.position:g}")
        return self

    @property
    def size_in_cells(self) -> int:
        """Models to train."""
        return len(self.panels) * (len(self.points) + len(self.references)) * len(self.seeds)

    def trains_like(self, other: StudyPlan) -> bool:
        """Whether both make the same runs, whatever their titles and descriptions."""
        return self.model_dump(exclude=_TEXTS) == other.model_dump(exclude=_TEXTS)

    def restricted(self, only: Sequence[str] = (), panels: Sequence[str] = (), seeds: int | None = None) -> StudyPlan:
        """A smaller study of the same kind; the runs it shares with the whole are done once."""
        changes: dict[str, Any] = {}
        if only:
            changes["points"] = _chosen("value", self.points, only)
        if panels:
            changes["panels"] = _chosen("panel", self.panels, panels)
        if seeds is not None:
            if not 1 <= seeds <= MOST_SEEDS:
                raise InputError(f"--seeds must be 1 to {MOST_SEEDS}, got {seeds}")
            changes["seeds"] = tuple(range(seeds))
        return self.model_copy(update=changes)


def _chosen(what: str, variants: tuple[Variant, ...], labels: Sequence[str]) -> tuple[Variant, ...]:
    known = [variant.label for variant in variants]
    for label in labels:
        if label not in known:
            near = difflib.get_close_matches(label, known, n=3, cutoff=0.4) or known
            raise InputError(f"this study has no {what} {label!r}; it has {', '.join(near)}")
    return tuple(variant for variant in variants if variant.label in labels)
