"""The results as data: what each study came to, in one file that outlives the stores it was read from.

`results.json` holds for each study and size the numbers, the verdicts, the run ids, the command, the hardware and the
day. Studies are finished on different days and machines, so a book is built upon the one before it: what the store at
hand has is read anew, everything else is carried over as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from recon_core.analysis.studies import ALIKE, FEWEST_SEEDS, TWO_SEEDS, Spread
from recon_core.config import Frozen, parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.store.files import read_object, write_json
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.plan import Check
from recon_core.studies.results_files import BOOK

_SIZES = list(StudySize)
RULES = 2
"""How studies are judged today, see `StudyAnswer.rules`."""
_SEEDS_OF_ONE_VALUE = (
    Check.MARGIN_RISES_TOO,
    Check.SOME_EVERYWHERE,
    Check.BELOW_REFERENCE,
    Check.REFERENCE_FAILS,
    Check.TEST_ERROR_STEADY,
)
_NO_WIDTH = re.compile(r"\(([+-]\S+) to \1\)")
BEST_PAIRS = 30
"""As many pairs as the authors' released notebooks show."""


class AnswerKey(NamedTuple):
    """Which experiment: a study of the catalogue in one of its sizes."""

    study: str
    size: str


class Origin(Frozen):
    """Who made a study's numbers, where and in what time."""

    run_id: str
    command: str
    size: StudySize
    models: int
    settings: str
    attack: str
    hardware: str
    seconds: float
    """Of all its runs together, each on one thread."""
    made: str
    """When it was begun; an attack can find more in a later version."""
    versions: str = ""
    """Of the program and of what computes in it; empty where nobody wrote them down."""


class AnswerVerdict(Frozen):
    """One claim of a paper in one panel, as it was judged."""

    claim: str
    panel: str
    agrees: bool | None
    sentence: str
    check: Check | None = None
    """What was checked; None in books from before that was kept."""


class NumbersRow(Frozen):
    """One value of the axis in one panel, over its seeds."""

    panel: str
    value: str
    seeds: int
    good: float
    """The mean over the seeds."""
    good_low: float | None
    """The 95% interval of that mean; None with one seed."""
    good_high: float | None
    of: int
    chance: float
    other_good: float | None
    """With the other SSIM window, and its chance level."""
    other_chance: float | None
    best_pairs_good: float | None
    """How many of the best `BEST_PAIRS` pairs are good."""
    best_ssim: float | None
    on_margin: float | None
    train_error: float | None
    test_error: float | None
    match_runs: tuple[str, ...]

    def cells(self) -> list[str]:
        """As the page's tables show it."""

        def mean(value: float | None, *, rate: bool = False) -> str:
            return "–" if value is None else f"{value:.1%}" if rate else f"{value:.3g}"

        # Books from before intervals of counts ended at the count itself.
        high = None if self.good_high is None else min(self.good_high, self.of)
        return [
            self.value,
            str(self.seeds),
            str(Spread((), self.good, self.good_low, high)).replace("95% interval ", ""),
            str(self.of),
            mean(self.chance),
            mean(self.other_good),
            mean(self.other_chance),
            mean(self.best_pairs_good),
            mean(self.best_ssim),
            mean(self.on_margin),
            mean(self.train_error, rate=True),
            mean(self.test_error, rate=True),
            ", ".join(f"`{run_id}`" for run_id in self.match_runs),
        ]


NUMBER_COLUMNS = (
    "value", "seeds", "good", "of", "chance level", "good, other SSIM window", "chance level, other window",
    f"good of the best {BEST_PAIRS}", "best SSIM", "on the margin", "train error", "test error", "match runs",
)  # fmt: skip


class Picture(Frozen):
    """A figure of a study in a file beside the book."""

    name: str
    """Its first word says what it shows, e.g. good or images."""
    file: str
    heading: str


class StudyAnswer(Frozen):
    """A finished study, whole enough to write its part of the page without its runs."""

    study: str
    origin: Origin
    overview: str
    panels: tuple[str, ...]
    verdicts: tuple[AnswerVerdict, ...]
    numbers: tuple[NumbersRow, ...]
    pictures: tuple[Picture, ...] = ()
    rules: int = 1
    """By 1, intervals of two seeds or without width decided, and `chance` was the largest of the controls' means.
    By 2 they decide nothing, and `chance` is the mean of the models' chance levels."""

    def judged(self) -> tuple[AnswerVerdict, ...]:
        """Its verdicts; of older rules, what these numbers would not decide today is not decided."""
        return self.verdicts if self.rules >= RULES else tuple(map(self._judged_again, self.verdicts))

    def _judged_again(self, verdict: AnswerVerdict) -> AnswerVerdict:
        seeds = [row.seeds for row in self.numbers if row.panel == verdict.panel]
        by_text = {claim.text: claim.check for claim in CATALOGUE[self.study].claims} if self.study in CATALOGUE else {}
        # Slopes, and differences of many values at once, pool the seeds of all values.
        alone = (verdict.check or by_text.get(verdict.claim)) in _SEEDS_OF_ONE_VALUE
        few = alone and min(seeds, default=0) < FEWEST_SEEDS
        if verdict.agrees is None or not (few or _NO_WIDTH.search(verdict.sentence)):
            return verdict
        why = f"{TWO_SEEDS if few else ALIKE}, so not decided"
        return verdict.model_copy(update={"agrees": None, "sentence": f"{verdict.sentence}; {why}"})

    @property
    def key(self) -> AnswerKey:
        return AnswerKey(self.study, self.origin.size)


class Book(Frozen):
    """All answers, at most one for each study and size."""

    format: Literal["afterimage-results"] = "afterimage-results"
    version: Literal[1] = 1
    answers: tuple[StudyAnswer, ...] = ()

    def of(self, study: str) -> tuple[StudyAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.study == study)


def read_book(folder: Path) -> Book:
    """The book in a folder of results; an empty one where there is none yet."""
    path = folder / BOOK
    if not path.is_file():
        return Book()
    try:
        return parse_config(Book, read_object(path))
    except (AfterimageError, OSError) as error:
        raise InputError(f"cannot read {str(path)!r}: {error}; move it away to build the results anew") from None


def write_book(folder: Path, book: Book) -> None:
    write_json(folder / BOOK, book.model_dump(mode="json"))


def merged(new: Sequence[StudyAnswer], old: Sequence[StudyAnswer]) -> dict[AnswerKey, StudyAnswer]:
    """One answer for each study and size: that of the most models, and among equals the new one."""
    found = {answer.key: answer for answer in new}
    for answer in old:
        if answer.key not in found or answer.origin.models > found[answer.key].origin.models:
            found[answer.key] = answer
    return found


def in_order(answers: Mapping[AnswerKey, StudyAnswer], studies: Iterable[str]) -> Book:
    """A book that reads the same however its answers came together; studies that are not named go last."""
    known = list(studies)

    def place(answer: StudyAnswer) -> tuple[int, str, int]:
        number = known.index(answer.study) if answer.study in known else len(known)
        return number, answer.study, _SIZES.index(answer.origin.size)

    return Book(answers=tuple(sorted(answers.values(), key=place)))
