"""The papers' figures and tables beside ours, from the finished studies of a store: numbers, pictures, verdicts, ids.

`write_results` reads the store, puts what it finds into the book that is there (`results_book`), and makes a page of it
(`results_page`). Nothing there is written by hand, so whoever has a store can build its part again and follow each
number to its run.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from PIL import Image, ImageDraw

from recon_core.analysis.studies import Measure, StudyRow
from recon_core.config import parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.plots.files import write_pngs
from recon_core.plots.studies import Strip
from recon_core.plots.style import without_title
from recon_core.runs.commands import offered_command
from recon_core.store import RunState, RunStore
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.claims import verdicts
from recon_core.studies.costs import single_thread_estimator, study_cost
from recon_core.studies.figures import StudyFigure, study_figures
from recon_core.studies.findings import overview
from recon_core.studies.paper_figures import OURS, PAPER_FIGURES, PaperFigure
from recon_core.studies.results import StudyResults, attack_text, study_results, threshold_of
from recon_core.studies.results_book import (
    BEST_PAIRS,
    RULES,
    AnswerKey,
    AnswerVerdict,
    Book,
    NumbersRow,
    Origin,
    Picture,
    StudyAnswer,
    in_order,
    merged,
    read_book,
    write_book,
)
from recon_core.studies.results_files import BOOK
from recon_core.studies.results_page import markdown, page_html
from recon_core.studies.study import StudyConfig

if TYPE_CHECKING:
    import plotly.graph_objects as go

_VERSIONS = ("afterimage", "torch")  # whose counts may differ
_OWN_FIGURES = ("good", "images", "tradeoff")
_LABEL_WIDTH = 190  # pixels beside a strip
_COLOURS = 64  # of a drawn figure; a sheet of images takes 256


def results_entries() -> tuple[PaperFigure, ...]:
    """Every figure of the papers, then the studies that answer none of them."""
    asked = {entry.study for entry in PAPER_FIGURES}
    own = (study for study in CATALOGUE.values() if study.name not in asked)
    return (
        *PAPER_FIGURES,
        *(PaperFigure(OURS, (study.title,), study.about, study.name, _OWN_FIGURES) for study in own),
    )


def finished_studies(store: RunStore) -> dict[AnswerKey, str]:
    """The finished study runs by study and size: those with the most models and, of several, the newest."""
    found: dict[AnswerKey, tuple[int, str]] = {}
    for summary in store.list("study"):  # the newest first
        if summary.status.state is not RunState.DONE:
            continue
        try:
            plan = parse_config(StudyConfig, store.open(summary.id).config).plan
        except AfterimageError:  # written by another version
            continue
        if plan.name not in CATALOGUE or plan.size not in list(StudySize):
            continue
        key = AnswerKey(plan.name, plan.size)
        if key not in found or plan.size_in_cells > found[key][0]:
            found[key] = (plan.size_in_cells, summary.id)
    return {key: run_id for key, (_, run_id) in found.items()}


# -- reading a study -------------------------------------------------------------------------------------


def read_answer(store: RunStore, run_id: str) -> StudyAnswer:
    """All that the page says of a finished study; its pictures are made apart."""
    results = study_results(store, run_id)
    judged = [
        AnswerVerdict(
            claim=one.claim.text, panel=one.panel, agrees=one.agrees, sentence=one.sentence, check=one.claim.check
        )
        # A study that was planned before the catalogue asked more is judged by what it asks now.
        for one in verdicts(results, CATALOGUE[results.plan.name].claims)
    ]
    return StudyAnswer(
        study=results.plan.name,
        origin=_origin(store, results),
        overview=overview(results),
        panels=results.panels,
        verdicts=tuple(judged),
        numbers=tuple(_numbers(store, results)),
        rules=RULES,
    )


def _origin(store: RunStore, results: StudyResults) -> Origin:
    run, plan = store.open(results.run_id), results.plan
    runs = {run_id for row in results.table.rows for run_id in row.runs.values()}
    seconds = 0.0
    for run_id in sorted(runs):
        with contextlib.suppress(InputError):  # deleted since
            seconds += store.open(run_id).status().seconds or 0.0
    return Origin(
        run_id=results.run_id,
        command=shlex.join(offered_command(run)),
        size=StudySize(plan.size),
        models=plan.size_in_cells,
        settings=", ".join(f"{key}={value}" for key, value in plan.base.items()) or "those of the defaults",
        attack=attack_text(store, results),
        hardware=str((run.result() or {}).get("hardware", "not recorded")),
        seconds=seconds,
        made=f"{run.created[:16].replace('T', ' ')} UTC",
        versions=", ".join(f"{name} {run.versions[name]}" for name in _VERSIONS if name in run.versions),
    )


def _numbers(store: RunStore, results: StudyResults) -> Iterator[NumbersRow]:
    for panel in results.panels:
        good = results.curve(panel, Measure.GOOD)
        if good is None:
            continue
        for point in (*good.points, *good.references):
            best = [
                pairs for row in point.rows if (pairs := _best_pairs(store, row, threshold_of(results))) is not None
            ]
            yield NumbersRow(
                panel=panel,
                value=point.label,
                seeds=len(point.spread.values),
                good=point.spread.mean,
                good_low=point.spread.low,
                good_high=point.spread.high,
                of=point.of,
                chance=point.chance or 0.0,
                other_good=_mean(point.rows, "other_good"),
                other_chance=_mean(point.rows, "other_chance"),
                best_pairs_good=fmean(found for found, _ in best) if best else None,
                best_ssim=max(ssim for _, ssim in best) if best else None,
                on_margin=_mean(point.rows, "on_margin"),
                train_error=_mean(point.rows, "train_error"),
                test_error=_mean(point.rows, "test_error"),
                match_runs=tuple(row.runs["match"] for row in point.rows if "match" in row.runs),
            )


def _best_pairs(store: RunStore, row: StudyRow, threshold: float) -> tuple[int, float] | None:
    """How many of the best pairs are good, and the best SSIM; None where the run is gone, or holds no images."""
    try:
        ssim = store.open(row.runs["match"]).tensors("match").get("ssim")
    except (AfterimageError, KeyError):
        return None
    if ssim is None or not len(ssim):
        return None
    best = torch.topk(ssim.double(), min(BEST_PAIRS, len(ssim))).values
    return int((best > threshold).sum()), float(best[0])


def _mean(rows: Sequence[StudyRow], name: str) -> float | None:
    values = [float(row.numbers[name]) for row in rows if name in row.numbers]
    return sum(values) / len(values) if values else None


# -- the book and the page -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The page, its pictures, and why some are missing."""

    page: Path
    pictures: tuple[Path, ...]
    missing: str | None


def write_results(store: RunStore, target: Path, *, draw: bool = True, beside: Sequence[Path] = ()) -> Written:
    """Build the page at `target`, .md or .html; book and pictures go into a folder beside it, named after it.

    Studies that the store has are read from it. Others are carried over from the book that is there; what neither has
    comes from those in the folders `beside`. Without `draw`, and where there is no browser, a study that was not drawn
    before goes without figures, and no file is deleted.
    """
    if target.suffix not in (".md", ".html"):
        raise InputError(f"results are written as .md or .html, got {target.name!r}; e.g. --to docs/results.md")
    folder = target.with_suffix("")
    for other in beside:
        if not (other / BOOK).is_file():
            raise InputError(f"{str(other)!r} holds no {BOOK}; name the folder of results that were built before")
    sources = {folder: read_book(folder), **{other: read_book(other) for other in beside}}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = {key: read_answer(store, run_id) for key, run_id in finished_studies(store).items()}
        answers = merged(tuple(fresh.values()), sources[folder].answers)
        for other in beside:
            answers = {**{answer.key: answer for answer in sources[other].answers}, **answers}
        own = {key: answer for key, answer in answers.items() if fresh.get(key) is answer}
        drawn, missing = _draw(store, own, sources[folder], folder, draw)
        for key, answer in answers.items():
            if key not in own:
                _take_pictures(answer, sources, folder)
        entries = results_entries()
        book = in_order({**answers, **drawn}, CATALOGUE)
        carried = answers.keys() - own.keys()
        text = markdown(book, entries, _costs(store, book), folder.name, carried)
        write_book(folder, book)
        kept = {picture.file for answer in book.answers for picture in answer.pictures}
        if draw and missing is None:  # else a figure that is not shown now may be all there is of it
            for old in folder.glob("*.png"):
                if old.name not in kept:
                    old.unlink()
        page = text if target.suffix == ".md" else page_html(text, target.parent)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}; choose another --to") from None
    return Written(target, tuple(folder / file for file in sorted(kept)), missing)


def _costs(store: RunStore, book: Book) -> dict[AnswerKey, str]:
    """What the sizes that were not run would take here."""
    done, estimator = {answer.key for answer in book.answers}, single_thread_estimator(store)
    keys = [AnswerKey(study.name, size) for study in CATALOGUE.values() for size in study.sizes]
    return {
        key: study_cost(CATALOGUE[key.study].plan(StudySize(key.size)), estimator).text
        for key in keys
        if key not in done
    }


# -- pictures --------------------------------------------------------------------------------------------


def _draw(
    store: RunStore, answers: Mapping[AnswerKey, StudyAnswer], before: Book, folder: Path, draw: bool
) -> tuple[dict[AnswerKey, StudyAnswer], str | None]:
    """The same answers with their pictures, and why some have none."""
    pictures: dict[AnswerKey, list[Picture]] = {}
    figures: dict[Path, go.Figure] = {}
    earlier = {(one.origin.run_id, picture.file) for one in before.answers for picture in one.pictures}
    for key, answer in answers.items():
        wanted = {kind for entry in results_entries() if entry.study == key.study for kind in entry.figures}
        pictures[key] = []
        for item in study_figures(store, study_results(store, answer.origin.run_id)):
            if not _wanted(item, wanted):
                continue
            path = folder / f"{key.study}-{key.size}-{item.name}.png"
            if item.strips:
                _sheet(item.strips).save(path, format="PNG", optimize=True)
            elif item.figure is not None:
                figures[path] = without_title(item.figure)
            pictures[key].append(Picture(name=item.name, file=path.name, heading=item.heading))
    missing = write_pngs(figures) if draw else "figures were not drawn; those drawn before of the same runs are kept"
    for path in figures:
        if path.exists() and missing is None:
            _in_few_colours(path)

    def shown(key: AnswerKey, picture: Picture) -> bool:
        """Not a figure that was drawn of another run."""
        path = folder / picture.file
        fresh = path not in figures or missing is None or (answers[key].origin.run_id, path.name) in earlier
        return fresh and path.exists()

    return {
        key: answers[key].model_copy(update={"pictures": tuple(one for one in found if shown(key, one))})
        for key, found in pictures.items()
    }, missing


def _take_pictures(answer: StudyAnswer, sources: Mapping[Path, Book], folder: Path) -> None:
    """Copy the pictures of an answer that comes from another folder."""
    home = next(place for place, book in sources.items() if any(one is answer for one in book.answers))
    for picture in answer.pictures:
        if home != folder and (home / picture.file).is_file():
            shutil.copyfile(home / picture.file, folder / picture.file)


def _wanted(item: StudyFigure, kinds: set[str]) -> bool:
    return item.name.split("-")[0] in kinds


def _in_few_colours(path: Path) -> None:
    """A figure has lines and marks in a handful of colours; the page is to load at once."""
    with Image.open(path) as drawn:
        small = drawn.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(path, format="PNG", optimize=True)


def _sheet(strips: Sequence[Strip]) -> Image.Image:
    """Strips under one another, each with its label to the left; in few colours, since the page is to load at once."""
    size = (_LABEL_WIDTH + max(strip.picture.shape[1] for strip in strips), sum(len(strip.picture) for strip in strips))
    sheet = Image.new("RGB", size, "white")
    draw, top = ImageDraw.Draw(sheet), 0
    for strip in strips:
        sheet.paste(Image.fromarray(strip.picture), (_LABEL_WIDTH, top))
        draw.text((6, top + len(strip.picture) // 2 - 6), _plain(strip.label), fill="black")
        top += len(strip.picture)
    return sheet.quantize(256)


def _plain(label: str) -> str:
    """The drawing font has Latin letters only."""
    return label.replace("λ", "lambda").encode("latin-1", "replace").decode("latin-1")
