"""The report of an audit, as it stands in a JSON file; `AuditReport.model_json_schema()` is its schema."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Similarity = Annotated[float, Field(ge=-1, le=1)]
"""SSIM."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Level(StrEnum):
    LEAKS = "leaks"
    UNCLEAR = "unclear"
    NOTHING_FOUND = "nothing-found"


class Verdict(_Part):
    """The answer in one sentence."""

    level: Level
    sentence: str
    p_value: Share | None = Field(
        description="Fisher's exact test that no more training images than held-out ones come back; null without any"
    )


class ModelFacts(_Part):
    """What was audited."""

    name: str
    architecture: str
    parameters: Count
    input_shape: list[int]
    outputs: Count
    notes: list[str] = Field(description="what was inferred from the file, and what was left out")
    run: str | None


class DataFacts(_Part):
    """The images that were attached as its training set."""

    source: str
    images: Count
    classes: dict[str, int] = Field(description="training images of each class, in the order of the outputs")
    held_out: Count = Field(description="images that were not trained on, for the controls and the membership tests")
    normalisation: str
    normalisation_assumed: bool = Field(description="the customary one that fits best, because nobody said")
    fingerprint: str = Field(description="sha256 of the attached training images and labels")


class FitFacts(_Part):
    """Whether the images look like the training set of the network."""

    likeness: Literal["fits", "doubtful", "refused"]
    sentence: str
    accuracy: Share
    held_out_accuracy: Share | None
    guessing: Share
    mean_loss: float
    margin_min: float
    margin_median: float
    kkt_residual_by_layer: dict[str, float] | None = Field(
        description="share of each layer's norm that the training images leave unexplained; null if not measured"
    )
    kkt_residual: float | None


class AttackFacts(_Part):
    """How the candidates were drawn; no image was seen by then."""

    recipe: str
    candidates: Count
    iterations: Count
    seeds: Count
    seconds: float
    residual: float | None = Field(description="share of the squared weights that the candidates leave unexplained")


class Controls(_Part):
    """What would count as reconstructed although nothing leaked."""

    mean_image: Count = Field(description="training images that the mean image alone would match")
    untrained: Count | None = Field(description="training images that candidates of an untrained network match")
    held_out: Count | None = Field(description="held-out images that the same candidates match")
    held_out_of: Count | None


class OtherWindow(_Part):
    """The same reconstructions counted with the other window of SSIM: on digits it can be another count altogether."""

    ssim: Literal["authors"] = Field(description="authors: the papers' 3x3 window; all other counts are of 11x11")
    reconstructed: Count
    chance: Count = Field(description="the largest of the controls with this window")

    def __str__(self) -> str:
        return f"{self.reconstructed} with the papers' 3x3 window (chance level {self.chance})"


class CountAt(_Part):
    """The count at another threshold, with its chance level."""

    threshold: Similarity
    reconstructed: Count
    chance: Count
    other_window: OtherWindow | None = Field(None, description="null in reports from before it was counted")


class Leak(_Part):
    """How many training images came back."""

    threshold: Similarity = Field(description="SSIM above which an image counts as reconstructed")
    reconstructed: Count
    of: Count
    candidates_behind: Count = Field(description="different candidates nearest to the reconstructed images")
    chance: Count = Field(description="the largest of the controls, as images of the training set")
    beyond_chance: Count
    controls: Controls
    other_window: OtherWindow | None = Field(None, description="null in reports from before it was counted")
    by_threshold: list[CountAt]


class CertainOnes(_Part):
    """Candidates that the attack itself calls certain, and how many of them are right."""

    certain: Count
    real: Count
    images_shown: Count
    precision: Share | None
    precision_low: Share | None
    precision_high: Share | None


class TrueRate(_Part):
    """A true-positive rate with its 95% interval."""

    false_positive_rate: Share
    true_positive_rate: Share
    low: Share
    high: Share
    false_positive_rate_high: Share = Field(description="the largest rate, at 95%, that the threshold may really have")
    resolved: bool = Field(description="false where there are too few held-out images to measure such a rate")


class Membership(_Part):
    """One membership test: loss threshold, margin, or likeness to a reconstruction."""

    name: str
    needs: str = Field(description="what an attacker needs for it")
    members: Count
    non_members: Count
    auc: Share
    auc_low: Share
    auc_high: Share
    at: list[TrueRate]
    curve: list[tuple[Share, Share]] = Field(description="points (false-positive rate, true-positive rate)")


class ImageRow(_Part):
    """One training image, the most exposed first."""

    rank: Count
    id: Count = Field(description="position in the source")
    label: str
    ssim: Similarity | None
    reconstructed: bool
    confidence: Share | None = Field(description="how sure the attack is of the candidate nearest to this image")
    certain: bool
    margin: float
    loss: float


class Assumption(_Part):
    """Something on which the answer rests."""

    name: str
    holds: Literal["yes", "no", "unknown"]
    sentence: str


class AuditReport(_Part):
    """One audit, whole."""

    schema_version: Literal["1"] = "1"
    version: str = Field(description="of Afterimage")
    created: str
    verdict: Verdict
    model: ModelFacts
    data: DataFacts
    fit: FitFacts
    attack: AttackFacts
    leak: Leak
    certain: CertainOnes | None = Field(description="null where the attack does not say how sure it is")
    membership: list[Membership] = Field(description="empty without held-out images")
    assumptions: list[Assumption]
    images: list[ImageRow]

    @property
    def reasons(self) -> list[str]:
        """What speaks against the attack on this model: a count of 0 then says little."""
        return [each.sentence for each in self.assumptions if each.holds == "no"]
