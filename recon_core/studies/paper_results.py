"""The papers' figures and tables beside ours, from the finished studies of a store: numbers, pictures, verdicts, ids.

`collect` reads the store, `write_results` makes a page of it: Markdown with PNGs beside it, or one HTML file. Nothing
there is written by hand, so whoever has the store can build it again and follow each number to its run.
"""

from __future__ import annotations

import base64
import html
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

from recon_core.analysis.studies import CONTROLS, CurvePoint, Measure, StudyRow
from recon_core.config import parse_config
from recon_core.errors import AfterimageError, InputError
from recon_core.plots.files import write_pngs
from recon_core.plots.studies import Strip
from recon_core.plots.style import without_title
from recon_core.runs.commands import offered_command
from recon_core.runs.reconstruction import ReconstructConfig
from recon_core.store import RunState, RunStore
from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.claims import Verdict, verdicts
from recon_core.studies.costs import duration_text, single_thread_estimator, study_cost
from recon_core.studies.figures import StudyFigure, study_figures
from recon_core.studies.findings import overview
from recon_core.studies.paper_figures import OURS, PAPER_FIGURES, PAPERS, PaperFigure
from recon_core.studies.results import StudyResults, study_results
from recon_core.studies.study import StudyConfig

MARKS = {True: "✓ agrees", False: "✗ does not agree", None: "? not decided"}
NOT_RUN = "Not run yet"
_LABEL_WIDTH = 190  # pixels beside a strip
_NUMBER_COLUMNS = (
    "value", "seeds", "good", "of", "chance level", "good, other SSIM window", "on the margin", "train error",
    "test error", "match runs",
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Who made a study's numbers, where and in what time."""

    run_id: str
    command: str
    size: str
    seeds: int
    settings: str
    attack: str
    hardware: str
    seconds: float
    """Of all its runs together, each on one thread."""
    made: str
    """The day it was begun."""


@dataclass(frozen=True)
class NumbersRow:
    """One value of the axis in one panel, over its seeds: what the page's tables hold."""

    panel: str
    point: CurvePoint
    chance: float
    other_good: float | None
    on_margin: float | None
    train_error: float | None
    test_error: float | None

    @property
    def match_runs(self) -> tuple[str, ...]:
        return tuple(row.runs["match"] for row in self.point.rows if "match" in row.runs)

    def cells(self) -> list[str]:
        def mean(value: float | None, *, rate: bool = False) -> str:
            return "–" if value is None else f"{value:.1%}" if rate else f"{value:.3g}"

        return [
            self.point.label,
            str(len(self.point.spread.values)),
            str(self.point.spread).replace("95% interval ", ""),
            str(self.point.of),
            mean(self.chance),
            mean(self.other_good),
            mean(self.on_margin),
            mean(self.train_error, rate=True),
            mean(self.test_error, rate=True),
            ", ".join(self.match_runs),
        ]


@dataclass(frozen=True, eq=False)
class StudyAnswer:
    """A finished study, read for the page."""

    origin: Origin
    results: StudyResults
    verdicts: tuple[Verdict, ...]
    numbers: tuple[NumbersRow, ...]


@dataclass(frozen=True, eq=False)
class Book:
    """All entries in order, and the answers by study; a study that was not run is not among them."""

    entries: tuple[PaperFigure, ...]
    answers: Mapping[str, StudyAnswer]
    costs: Mapping[str, str]
    """What a study that was not run would take here."""


def collect(store: RunStore) -> Book:
    """Read every finished study of the catalogue."""
    entries = (*PAPER_FIGURES, *_own_entries())
    names = [name for name in dict.fromkeys(entry.study for entry in entries) if name is not None]
    chosen = {name: run_id for name in names if (run_id := finished_study(store, name)) is not None}
    estimator = single_thread_estimator(store)
    costs = {}
    for name in names:
        if name not in chosen:
            sizes = CATALOGUE[name].sizes
            parts = [f"{size}: {study_cost(CATALOGUE[name].plan(size), estimator).text}" for size in sizes]
            costs[name] = ", ".join(parts)
    return Book(entries, {name: _answer(store, run_id) for name, run_id in chosen.items()}, costs)


def finished_study(store: RunStore, name: str) -> str | None:
    """The finished study run of that name with the most models; of several, the newest."""
    found: list[tuple[int, str]] = []
    for summary in store.list("study"):  # the newest first
        if summary.status.state is not RunState.DONE:
            continue
        try:
            plan = parse_config(StudyConfig, store.open(summary.id).config).plan
        except AfterimageError:  # written by another version
            continue
        if plan.name == name and plan.size in list(StudySize):
            found.append((plan.size_in_cells, summary.id))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _own_entries() -> Iterator[PaperFigure]:
    """Studies that answer no figure of the papers."""
    asked = {entry.study for entry in PAPER_FIGURES}
    for study in CATALOGUE.values():
        if study.name not in asked:
            yield PaperFigure(OURS, (study.title,), study.about, study.name, ("good", "images"))


def _answer(store: RunStore, run_id: str) -> StudyAnswer:
    results = study_results(store, run_id)
    return StudyAnswer(_origin(store, results), results, verdicts(results), tuple(_numbers(results)))


def _origin(store: RunStore, results: StudyResults) -> Origin:
    run, plan = store.open(results.run_id), results.plan
    runs = {run_id for row in results.table.rows for run_id in row.runs.values()}
    seconds, attacks = 0.0, []
    for run_id in sorted(runs):
        try:
            one = store.open(run_id)
        except InputError:  # deleted since
            continue
        seconds += one.status().seconds or 0.0
        if one.kind == "reconstruct" and one.config.get("baseline") is None:
            attacks.append(parse_config(ReconstructConfig, one.config).settings)
    recipes = sorted({str(attack.recipe) for attack in attacks})
    candidates = sorted({attack.m for attack in attacks})
    span = "" if not candidates else f", m = {candidates[0]}" + (f" to {candidates[-1]}" if len(candidates) > 1 else "")
    return Origin(
        run_id=results.run_id,
        command=shlex.join(offered_command(run)),
        size=plan.size,
        seeds=len(plan.seeds),
        settings=", ".join(f"{key}={value}" for key, value in plan.base.items()) or "those of the defaults",
        attack=" and ".join(recipes) + span,
        hardware=str((run.result() or {}).get("hardware", "not recorded")),
        seconds=seconds,
        made=run.created[:10],
    )


def _numbers(results: StudyResults) -> Iterator[NumbersRow]:
    for panel in results.panels:
        good = results.curve(panel, Measure.GOOD)
        if good is None:
            continue
        for point in (*good.points, *good.references):
            yield NumbersRow(
                panel=panel,
                point=point,
                chance=max((_mean(point.rows, str(measure)) or 0.0) for measure in CONTROLS),
                other_good=_mean(point.rows, "other_good"),
                on_margin=_mean(point.rows, "on_margin"),
                train_error=_mean(point.rows, "train_error"),
                test_error=_mean(point.rows, "test_error"),
            )


def _mean(rows: Sequence[StudyRow], name: str) -> float | None:
    values = [float(row.numbers[name]) for row in rows if name in row.numbers]
    return sum(values) / len(values) if values else None


# -- the page --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The page, its pictures, and why some are missing."""

    page: Path
    pictures: tuple[Path, ...]
    missing: str | None


def write_results(store: RunStore, target: Path, *, draw: bool = True) -> Written:
    """Build the page at `target`, .md or .html; pictures go into a folder beside it, named after it.

    Without `draw`, and where there is no browser to draw them with, the page goes without figures.
    """
    if target.suffix not in (".md", ".html"):
        raise InputError(f"results are written as .md or .html, got {target.name!r}; e.g. --to docs/results.md")
    book = collect(store)
    folder = target.with_suffix("")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.png"):
            old.unlink()
        pictures, missing = _write_pictures(store, book, folder, draw)
        text = markdown(book, pictures, folder.name)
        page = text if target.suffix == ".md" else _html(text, target.parent)
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}; choose another --to") from None
    files = tuple(folder / picture.file for named in pictures.values() for picture in named.values())
    return Written(target, files, missing)


class Picture(NamedTuple):
    file: str
    heading: str


Pictures = Mapping[str, Mapping[str, Picture]]
"""By study and by name of its figure."""


def _write_pictures(store: RunStore, book: Book, folder: Path, draw: bool) -> tuple[Pictures, str | None]:
    files: dict[str, dict[str, Picture]] = {}
    drawn = {}
    for name, answer in book.answers.items():
        wanted = {kind for entry in book.entries if entry.study == name for kind in entry.figures}
        for item in study_figures(store, answer.results):
            if not _wanted(item, wanted):
                continue
            path = folder / f"{name}-{item.name}.png"
            if item.strips:
                _sheet(item.strips).save(path, format="PNG", optimize=True)
            elif item.figure is not None and draw:
                drawn[path] = without_title(item.figure)
            else:
                continue
            files.setdefault(name, {})[item.name] = Picture(path.name, item.heading)
    missing = write_pngs(drawn) if draw else "figures were not asked for"
    there = {
        name: {figure: picture for figure, picture in named.items() if (folder / picture.file).exists()}
        for name, named in files.items()
    }
    return there, missing


def _wanted(item: StudyFigure, kinds: set[str] | tuple[str, ...]) -> bool:
    return item.name.split("-")[0] in kinds


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


_ABOUT = (
    "Every figure and table of Haim et al. (2022) and Buzaglo et al. (2023), beside ours. Built from the finished "
    "studies of a store by `python -m recon_core results`; nothing here is written by hand. A claim agrees only where "
    "the 95% interval over seeds says so. Good is SSIM above 0.4 with the 11x11 window; the other window is the 3x3 "
    "one of the papers' code. Our attack knows that edges of images are sparse, which the papers' attack does not, so "
    "counts may be higher than theirs. Any run named here is shown by `python -m recon_core runs show RUN`."
)


def markdown(book: Book, pictures: Pictures, folder: str) -> str:
    """The whole page; pictures are linked in `folder`."""
    lines = [
        "# Results",
        "",
        _ABOUT,
        "",
        *_contents(book),
    ]
    told: dict[str, str] = {}
    for paper in (*PAPERS, OURS):
        lines += ["", f"## {paper}"]
        for entry in book.entries:
            if entry.paper == paper:
                lines += ["", f"### {entry.title}", "", *_entry(book, entry, pictures, folder, told)]
    return "\n".join(lines) + "\n"


def _contents(book: Book) -> list[str]:
    rows = [[entry.paper, entry.title, _status(book, entry)] for entry in book.entries]
    return _table(("paper", "figure", "ours"), rows)


def _status(book: Book, entry: PaperFigure) -> str:
    if entry.study is None or entry.study not in book.answers:
        return NOT_RUN.lower()
    answer = book.answers[entry.study]
    counted = [MARKS[agrees] for agrees in MARKS if any(verdict.agrees is agrees for verdict in answer.verdicts)]
    return f"`{answer.origin.run_id}`: {'; '.join(counted) or 'shown'}"


def _entry(book: Book, entry: PaperFigure, pictures: Pictures, folder: str, told: dict[str, str]) -> list[str]:
    lines = [f"**In the paper.** {entry.shows}", ""]
    if entry.study is None or entry.study not in book.answers:
        commands = entry.commands or (f"python -m recon_core study {entry.study} --size {_smallest(entry.study)}",)
        cost = entry.cost or f"estimated for this machine, {book.costs.get(entry.study or '', 'unknown')}"
        return [*lines, f"**{NOT_RUN}.** {' then '.join(f'`{command}`' for command in commands)} ({cost})."]
    answer = book.answers[entry.study]
    origin = answer.origin
    lines += [
        f"**Ours.** `{origin.command}`, run `{origin.run_id}` of {origin.made}: size {origin.size}, {origin.settings}; "
        f"attack {origin.attack}; {origin.hardware}, {duration_text(origin.seconds)} of run time in all, one thread a "
        f"run. {overview(answer.results)}",
        "",
        *_verdict_lines(answer.verdicts),
    ]
    for name, picture in pictures.get(entry.study, {}).items():
        if name.split("-")[0] in entry.figures:
            lines += ["", f"![{picture.heading}]({folder}/{picture.file})"]
    if entry.study in told:
        return [*lines, "", f"Numbers: see {told[entry.study]}."]
    told[entry.study] = f"{entry.paper}, {entry.title}"
    for panel in answer.results.panels:
        rows = [row.cells() for row in answer.numbers if row.panel == panel]
        lines += ["", *([f"*{panel}*", ""] if panel else []), *_table(_NUMBER_COLUMNS, rows)]
    return lines


def _smallest(study: str | None) -> str:
    return str(CATALOGUE[study].sizes[0]) if study is not None else str(StudySize.QUICK)


def _verdict_lines(found: Sequence[Verdict]) -> list[str]:
    lines = []
    for verdict in found:
        place = f" ({verdict.panel})" if verdict.panel else ""
        lines.append(f"- {verdict.claim.text} **{MARKS[verdict.agrees]}**{place}: {verdict.sentence}.")
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(head), line(["---"] * len(head)), *map(line, rows)]


_PICTURE = re.compile(r'<img src="([^"]+)"')
_STYLE = """
body { font: 16px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 1000px; margin: 2rem auto; }
img { max-width: 100%; } table { border-collapse: collapse; font-size: 0.8rem; } h3, img, tr { break-inside: avoid; }
th, td { border-bottom: 1px solid #ddd; padding: 3px 8px; text-align: left; vertical-align: top; }
h3 { break-after: avoid; margin-top: 2rem; } code { font-size: 0.85em; overflow-wrap: anywhere; }
@media print { body { font-size: 11pt; max-width: none; margin: 0; } @page { size: A4; margin: 15mm; } }
"""


def _html(text: str, beside: Path) -> str:
    """One file that needs nothing else and prints well; pictures are inside."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)

    def inside(found: re.Match[str]) -> str:
        data = base64.b64encode((beside / html.unescape(found[1])).read_bytes()).decode("ascii")
        return f'<img src="data:image/png;base64,{data}"'

    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Results · Afterimage</title>'
        f"<style>{_STYLE}</style></head><body>{_PICTURE.sub(inside, body)}</body></html>\n"
    )
