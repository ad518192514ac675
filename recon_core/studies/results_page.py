"""The results as a page: Markdown with its pictures beside it, or one HTML file that prints."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from recon_core.studies.catalogue import CATALOGUE, StudySize
from recon_core.studies.costs import duration_text
from recon_core.studies.paper_figures import OURS, PAPERS, PaperFigure
from recon_core.studies.results_book import NUMBER_COLUMNS, RULES, AnswerKey, AnswerVerdict, Book, StudyAnswer

MARKS = {True: "✓ agrees", False: "✗ does not agree", None: "? not decided"}
NOT_RUN = "Not run yet"
_CARRIED = "Carried over from an earlier build: its runs are not in the store that this page was built from."
_OLDER_RULES = "Its chance levels are older: the largest of the controls' means over the seeds."
_ABOUT = (
    "Every figure and table of Haim et al. (2022) and Buzaglo et al. (2023), beside ours. Built from finished studies "
    "by `python -m recon_core results`; nothing here is written by hand, and `results.json` beside the pictures holds "
    "the same as data.\n\n"
    "A claim agrees only where the 95% interval over seeds says so. Fewer than three seeds decide nothing (slopes, and "
    "many values compared at once, pool the seeds of all values), and neither does an interval without width, where "
    "all seeds gave the same number; a count that all seeds agree on is held against its "
    "chance level by the exact binomial interval of one model's images. The chance level of a model is the largest of "
    "its controls (mean image, untrained network, held-out images as a share); tables and sentences give its mean over "
    "the seeds. Good is SSIM above 0.4 with the 11x11 window; the other window is the 3x3 one, with which the papers' "
    "code counts. Our attack knows that edges of images are sparse, which the papers' attack does not, so counts may "
    "be higher than theirs.\n\n"
    "From a number to its runs: each row of a table names its match runs, one for each seed. In the store that made "
    "them, `python -m recon_core runs show RUN` gives a run's command, and the attack and the model it was made from. "
    "In another store the study's command makes them again, with `--only VALUE` (and `--panel PANEL`) those of one "
    "row. The numbers in a claim's sentence are those of the table of that study."
)
_SIZES = {
    StudySize.QUICK: "small enough for minutes on two cores",
    StudySize.PAPER_N: "the papers' numbers of images and networks as far as the bundled images go, one seed, one "
    "start of the attack",
    StudySize.FULL: "the papers' experiment",
}


def markdown(
    book: Book,
    entries: Sequence[PaperFigure],
    costs: Mapping[AnswerKey, str],
    folder: str,
    carried: Collection[AnswerKey] = (),
) -> str:
    """The whole page; pictures are linked in `folder`. `costs` are of what was not run."""
    page = _Page(book, costs, folder, carried)
    lines = ["# Results", "", _ABOUT, ""]
    lines += _table(("paper", "figure", "ours"), [[one.paper, one.title, page.status(one)] for one in entries])
    for paper in (*PAPERS, OURS):
        lines += ["", f"## {paper}"]
        for entry in entries:
            if entry.paper == paper:
                lines += ["", f"### {entry.title}", "", *page.entry(entry)]
    return "\n".join(lines) + "\n"


class _Page:
    """Entries in their order; numbers and what is still to run are told once for each study."""

    def __init__(self, book: Book, costs: Mapping[AnswerKey, str], folder: str, carried: Collection[AnswerKey]) -> None:
        self._book, self._costs, self._folder, self._carried = book, costs, folder, carried
        self._told: dict[str, str] = {}
        self._drawn: dict[str, str] = {}

    def status(self, entry: PaperFigure) -> str:
        answers = self._book.of(entry.study)
        return "; ".join(_verdict_of(answer, entry) for answer in answers) if answers else NOT_RUN.lower()

    def entry(self, entry: PaperFigure) -> list[str]:
        lines = [f"**{'What is asked' if entry.paper == OURS else 'In the paper'}.** {entry.shows}"]
        first = self._told.setdefault(entry.study, f"{entry.paper}, {entry.title}")
        again = first != f"{entry.paper}, {entry.title}"
        answers = self._book.of(entry.study)
        for answer in answers:
            lines += ["", *self._answer(answer, entry), *([] if again else _numbers(answer))]
        if answers and again:
            lines += ["", f"Numbers: see {first}."]
        if not (answers and again):
            lines += self._missing(entry.study)
        return lines

    def _answer(self, answer: StudyAnswer, entry: PaperFigure) -> list[str]:
        origin = answer.origin
        made_by = ", ".join(filter(None, (origin.versions, origin.hardware)))
        # Books from before attacks had a version name the recipe alone.
        attack = origin.attack if "version" in origin.attack else f"attack {origin.attack}, version not recorded"
        carried = f" {_CARRIED}" if answer.key in self._carried else ""
        carried += f" {_OLDER_RULES}" if answer.rules < RULES else ""
        judged = _verdicts(answer, entry)
        lines = [
            f"**Ours, size {origin.size}** ({_SIZES[origin.size]}). `{origin.command}`, run "
            f"`{origin.run_id}` of {origin.made}: {origin.settings}; {attack}; {made_by}, "
            f"{duration_text(origin.seconds)} of run time in all, one thread a run. {answer.overview}{_part(answer)}"
            f"{carried}",
            *([""] if judged else []),
            *map(_verdict_line, judged),
        ]
        elsewhere: list[str] = []
        for picture in answer.pictures:
            if picture.name.split("-")[0] not in entry.figures:
                continue
            title = f"{entry.paper}, {entry.title}"
            place = self._drawn.setdefault(picture.file, title)
            if place == title:
                lines += ["", f"![{picture.heading}, size {origin.size}]({self._folder}/{picture.file})"]
            elif place not in elsewhere:
                elsewhere.append(place)
        return [*lines, "", f"Pictures: see {' and '.join(elsewhere)}."] if elsewhere else lines

    def _missing(self, study: str) -> list[str]:
        """Sizes that were not run, each with its command and estimated duration."""
        done = {answer.origin.size for answer in self._book.of(study)}
        left = [size for size in CATALOGUE[study].sizes if size not in done]
        if not left:
            return []
        commands = [
            f"`python -m recon_core study {study} --size {size}` ({self._costs[AnswerKey(study, size)]})"
            for size in left
        ]
        heading = f"{NOT_RUN}, at other sizes" if done else NOT_RUN
        return ["", f"**{heading}.** {'; '.join(commands)}; estimated for the machine that built this page."]


def _part(answer: StudyAnswer) -> str:
    """Where only some of the study's values or seeds were run."""
    origin = answer.origin
    whole = CATALOGUE[answer.study].plan(origin.size).size_in_cells
    if origin.models >= whole:
        return ""
    command = f"python -m recon_core study {answer.study} --size {origin.size}"
    return f" That is a part: all {whole} models are `{command}`."


def _verdicts(answer: StudyAnswer, entry: PaperFigure) -> list[AnswerVerdict]:
    """Those on what this figure says; a study answers several."""
    by_text = {claim.text: claim.check for claim in CATALOGUE[answer.study].claims}
    return [
        verdict
        for verdict in answer.judged()
        if entry.checks is None or (verdict.check or by_text.get(verdict.claim)) in entry.checks
    ]


def _verdict_of(answer: StudyAnswer, entry: PaperFigure) -> str:
    judged = _verdicts(answer, entry)
    found = [MARKS[agrees] for agrees in MARKS if any(verdict.agrees is agrees for verdict in judged)]
    return f"{answer.origin.size} `{answer.origin.run_id}`: {', '.join(found) or 'shown'}"


def _verdict_line(verdict: AnswerVerdict) -> str:
    place = f" ({verdict.panel})" if verdict.panel else ""
    return f"- {verdict.claim} **{MARKS[verdict.agrees]}**{place}: {verdict.sentence}."


def _numbers(answer: StudyAnswer) -> list[str]:
    lines = []
    for panel in answer.panels:
        rows = [row.cells() for row in answer.numbers if row.panel == panel]
        lines += ["", *([f"*{panel}*", ""] if panel else []), *_table(NUMBER_COLUMNS, rows)]
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
td code { white-space: nowrap; }
@media print {
  body { font-size: 10pt; max-width: none; margin: 0; } @page { size: A4; margin: 12mm; }
  img { max-height: 170mm; } table { font-size: 7pt; } th, td { padding: 2px 4px; } td code { font-size: 6pt; }
}
"""


def page_html(text: str, beside: Path) -> str:
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
