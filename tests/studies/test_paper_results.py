"""The results page: every figure of both papers has its entry, and every number in it is one of the store's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.errors import InputError
from recon_core.matching.controls import chance_level
from recon_core.store import RunStore
from recon_core.studies.catalogue import CATALOGUE
from recon_core.studies.claims import verdicts
from recon_core.studies.paper_figures import NUMBERS, OURS, PAPER_FIGURES, PAPERS
from recon_core.studies.paper_results import finished_studies, results_entries, write_results
from recon_core.studies.plan import Check
from recon_core.studies.results import study_results
from recon_core.studies.results_book import (
    BEST_PAIRS,
    RULES,
    AnswerKey,
    AnswerVerdict,
    Book,
    Picture,
    StudyAnswer,
    read_book,
    write_book,
)
from recon_core.studies.results_files import BOOK, default_target, shipped_folder
from recon_core.studies.results_page import MARKS, NOT_RUN
from recon_core.studies.study import StudyConfig, create_study
from tests.studies.tiny_studies import do_study, tiny_plan

CLAIMS = [
    {"text": "Some decay values raise the count.", "check": Check.RISES_SOMEWHERE},
    {"text": "The test error does not change much.", "check": Check.TEST_ERROR_STEADY},
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str]:
    """A store with one finished study under the name of one of the catalogue."""
    store = RunStore(tmp_path_factory.mktemp("results") / "runs")
    plan = tiny_plan(name="weight-decay", size="quick", seeds=[0, 1], claims=CLAIMS)
    run = create_study(store, StudyConfig(plan=plan), ["weight-decay", "--size", "quick"])
    do_study(run)
    return store, run.id


@pytest.fixture(scope="module")
def page(built: tuple[RunStore, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(built[0], tmp_path_factory.mktemp("docs") / "results.md", draw=False).page


def sections(page: Path) -> dict[str, str]:
    """Entries by paper and title."""
    found, paper = {}, ""
    for part in re.split(r"^(?=#{2,3} )", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if heading.startswith("## "):
            paper = heading[3:]
        else:
            found[f"{paper}, {heading[4:]}"] = text
    return found


def tables(text: str) -> list[list[dict[str, str]]]:
    """Every table of a text, row by row."""
    found = []
    for lines in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.strip().split("\n")]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def test_every_figure_and_table_of_both_papers_has_an_entry(page: Path) -> None:
    for paper in PAPERS:
        answered = {number for entry in PAPER_FIGURES if entry.paper == paper for number in entry.numbers}
        assert answered == set(NUMBERS[paper])
    assert len(NUMBERS[PAPERS[0]]) == 23
    entries = sections(page)
    assert set(entries) >= {f"{entry.paper}, {entry.title}" for entry in PAPER_FIGURES}
    assert len({f"{entry.paper}, {entry.title}" for entry in PAPER_FIGURES}) == len(PAPER_FIGURES)
    assert {entry.study for entry in PAPER_FIGURES if entry.study} <= set(CATALOGUE)
    ours = {name for name in entries if name.startswith(OURS)}
    assert f"{OURS}, {CATALOGUE['faces'].title}" in ours


def test_every_number_is_one_of_the_store(built: tuple[RunStore, str], page: Path) -> None:
    """Not what the study remembers: the results of the runs themselves, found by the ids on the page."""
    store, _ = built
    told = [table for text in sections(page).values() for table in tables(text)]
    assert len(told) == 1  # once, in the first entry of that study
    (rows,) = told
    assert [row["value"] for row in rows] == ["none", "0.001", "small start"]
    for row in rows:
        matches = [store.open(run_id.strip(" `")) for run_id in row["match runs"].split(",")]
        assert len(matches) == int(row["seeds"]) == 2
        counts = [(match.result() or {})["count"] for match in matches]
        models = [store.open(store.open(match.config["runs"][0]).config["model"]) for match in matches]
        facts = [model.result() or {} for model in models]

        def mean(values: list[float]) -> float:
            return sum(values) / len(values)

        assert row["good"].split(" ")[0] == f"{mean([count['good'] for count in counts]):.3g}"
        assert int(row["of"]) == counts[0]["of"] == 10
        chances = [
            chance_level(
                count["of"],
                mean_image=count["control_mean_image"],
                untrained=count["control_untrained"],
                held_out=count["non_members"],
                held_out_of=count["non_members_of"],
            )
            for count in counts
        ]
        assert row["chance level"] == f"{mean(chances):.3g}"
        assert row["good, other SSIM window"] == f"{mean([count['other']['good'] for count in counts]):.3g}"
        assert row["chance level, other window"] == f"{mean([count['other']['chance'] for count in counts]):.3g}"
        pairs = [match.tensors("match")["ssim"].sort(descending=True).values[:BEST_PAIRS] for match in matches]
        assert row["good of the best 30"] == f"{mean([int((best > 0.4).sum()) for best in pairs]):.3g}"
        assert row["best SSIM"] == f"{max(float(best[0]) for best in pairs):.3g}"
        assert row["on the margin"] == f"{mean([fact['on_margin'] for fact in facts]):.3g}"
        assert row["train error"] == f"{mean([fact['train_error'] for fact in facts]):.1%}"
        assert row["test error"] == f"{mean([fact['test_error'] for fact in facts]):.1%}"


def test_an_entry_says_who_made_it_and_what_it_found(built: tuple[RunStore, str], page: Path) -> None:
    store, run_id = built
    entries = sections(page)
    decay = next(text for name, text in entries.items() if name.startswith("Buzaglo et al. 2023, Fig. 5"))
    assert f"`{run_id}`" in decay
    assert "**Ours, size quick**" in decay
    assert "`python -m recon_core study weight-decay --size quick`" in decay
    assert "2 seeds of each" in decay
    whole = CATALOGUE["weight-decay"].plan().size_in_cells
    assert f"That is a part: all {whole} models are `python -m recon_core study weight-decay --size quick`." in decay
    assert re.search(r"\d+ CPU cores? \(", decay)
    assert "attack fast, version 1, prior off, m = " in decay
    assert ", B = 1.1, 11x11 window; " in decay
    assert f"afterimage {store.open(run_id).versions['afterimage']}, torch " in decay
    for verdict in verdicts(study_results(store, run_id)):
        assert f"{verdict.claim.text} **{MARKS[verdict.agrees]}**: {verdict.sentence}." in decay
    pictures = re.findall(r"!\[.*\]\((results/.*\.png)\)", decay)
    assert [Path(picture).name for picture in pictures] == ["weight-decay-quick-images.png"]
    assert all((page.parent / picture).stat().st_size > 1000 for picture in pictures)
    again = next(text for name, text in entries.items() if name.startswith("Buzaglo et al. 2023, Fig. 14"))
    assert "Numbers: see Buzaglo et al. 2023, Fig. 5" in again


def test_each_figure_is_judged_by_its_own_claims_and_no_picture_is_shown_twice(page: Path) -> None:
    entries = sections(page)
    text = page.read_text(encoding="utf-8")
    again = next(one for name, one in entries.items() if name.startswith("Buzaglo et al. 2023, Fig. 14"))
    assert "The test error does not change much. **" in again
    assert "Some decay values raise the count. **" not in again
    # The plan of that study does not ask about the margin, the catalogue does.
    assert "With such a decay more training samples sit on the margin. **" in again
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == len(set(pictures))
    for entry in PAPER_FIGURES:
        asked = {claim.check for claim in CATALOGUE[entry.study].claims}
        assert set(entry.checks or ()) <= asked, entry.title
    twice = [(entry.study, figure) for entry in PAPER_FIGURES for figure in entry.figures]
    assert any(twice.count(one) > 1 for one in twice)  # there are figures of two entries, so the rule is needed


def test_a_picture_of_two_entries_is_shown_in_the_first(store: RunStore, tmp_path: Path) -> None:
    do_study(create_study(store, StudyConfig(plan=tiny_plan(name="samples", size="quick", seeds=[0])), ["samples"]))
    entries = sections(write_results(store, tmp_path / "results.md", draw=False).page)
    assert "samples-quick-images.png" in entries["Haim et al. 2022, Fig. 1"]
    assert "samples-quick-images.png" not in entries["Haim et al. 2022, Fig. 6, Fig. 7"]
    assert "Pictures: see Haim et al. 2022, Fig. 1." in entries["Haim et al. 2022, Fig. 6, Fig. 7"]
    assert "?" in entries["Haim et al. 2022, Table 1 (numbers of images)"]  # one seed decides nothing


def test_what_was_not_run_says_so_with_command_and_cost(page: Path) -> None:
    entries = sections(page)
    for entry in PAPER_FIGURES:
        text = entries[f"{entry.paper}, {entry.title}"]
        if entry.study == "weight-decay":
            assert f"**{NOT_RUN}.**" not in text
            continue
        assert f"**{NOT_RUN}.** `python -m recon_core " in text
        for size in CATALOGUE[entry.study].sizes:
            assert re.search(rf"study {entry.study} --size {size}` \(\d+(?:\.\d)? (?:s|min|h|days)\)", text), text
    first = next(text for name, text in entries.items() if name.startswith("Buzaglo et al. 2023, Fig. 5"))
    assert f"**{NOT_RUN}, at other sizes.** `python -m recon_core study weight-decay --size paper-n`" in first


def test_the_study_with_most_models_counts_and_only_finished_ones(built: tuple[RunStore, str]) -> None:
    store, run_id = built
    one = tiny_plan(name="weight-decay", size="quick", references=[], points=[tiny_plan().points[0]])
    smaller = create_study(store, StudyConfig(plan=one))
    do_study(smaller)
    waiting = create_study(store, StudyConfig(plan=tiny_plan(name="samples", size="quick")))
    try:
        assert finished_studies(store) == {AnswerKey("weight-decay", "quick"): run_id}
    finally:
        store.delete(smaller.id)
        store.delete(waiting.id)


def entry_bytes(folder: Path, study: str) -> bytes:
    """What the book says of a study, as it stands in the file."""
    (found,) = [one for one in json.loads((folder / BOOK).read_bytes())["answers"] if one["study"] == study]
    return json.dumps(found).encode()


def test_studies_of_other_stores_are_carried_over_as_they_stand(
    built: tuple[RunStore, str], tmp_path: Path, store: RunStore
) -> None:
    """First one store, then another one: both studies are there, and the first is unchanged to the byte."""
    target, folder = tmp_path / "docs" / "results.md", tmp_path / "docs" / "results"
    target.parent.mkdir()
    write_results(built[0], target, draw=False)
    before, picture = entry_bytes(folder, "weight-decay"), (folder / "weight-decay-quick-images.png").read_bytes()
    one = create_study(store, StudyConfig(plan=tiny_plan(name="samples", size="quick")), ["samples"])
    do_study(one)
    page = write_results(store, target, draw=False).page.read_text(encoding="utf-8")
    assert entry_bytes(folder, "weight-decay") == before
    assert (folder / "weight-decay-quick-images.png").read_bytes() == picture
    entries = sections(target)
    carried = next(text for name, text in entries.items() if name.startswith("Buzaglo et al. 2023, Fig. 5"))
    assert f"run `{built[1]}`" in carried
    assert "Carried over from an earlier build" in carried
    fresh = entries["Haim et al. 2022, Fig. 1"]
    assert f"run `{one.id}`" in fresh
    assert "Carried over" not in fresh
    # Back in the first store it is the other one that is carried over; the page but for that is the same.
    again = write_results(built[0], target, draw=False).page.read_text(encoding="utf-8")
    assert entry_bytes(folder, "weight-decay") == before
    assert sorted(re.findall(r"run `(\S+)`", again)) == sorted(re.findall(r"run `(\S+)`", page))


def test_a_carried_study_gives_way_to_one_with_as_many_models_only(
    built: tuple[RunStore, str], tmp_path: Path, store: RunStore
) -> None:
    target = tmp_path / "results.md"
    write_results(built[0], target, draw=False)
    small = tiny_plan(name="weight-decay", size="quick", references=[], points=[tiny_plan().points[0]])
    do_study(create_study(store, StudyConfig(plan=small)))
    write_results(store, target, draw=False)
    assert [one.origin.run_id for one in read_book(tmp_path / "results").answers] == [built[1]]
    # Results from beside fill gaps, with their pictures, and replace nothing.
    write_results(store, tmp_path / "own.md", draw=False, beside=[tmp_path / "results"])
    assert [one.origin.models for one in read_book(tmp_path / "own").answers] == [1]
    write_results(RunStore(tmp_path / "empty"), tmp_path / "new.md", draw=False, beside=[tmp_path / "results"])
    assert [one.origin.run_id for one in read_book(tmp_path / "new").answers] == [built[1]]
    assert (tmp_path / "new" / "weight-decay-quick-images.png").is_file()


def test_without_drawing_no_figure_is_deleted_and_none_of_another_run_shown(
    built: tuple[RunStore, str], tmp_path: Path
) -> None:
    target, folder = tmp_path / "results.md", tmp_path / "results"
    write_results(built[0], target, draw=False)
    (answer,) = read_book(folder).answers
    drawn = folder / "weight-decay-quick-good.png"
    drawn.write_bytes(b"drawn before")
    pictures = (Picture(name="good", file=drawn.name, heading="Counts"), *answer.pictures)
    theirs = answer.origin.model_copy(update={"run_id": "study-20250101-aaaaaa"})
    for origin, shown in ((answer.origin, True), (theirs, False)):
        write_book(folder, Book(answers=(answer.model_copy(update={"origin": origin, "pictures": pictures}),)))
        written = write_results(built[0], target, draw=False)
        assert drawn.read_bytes() == b"drawn before"
        assert (drawn.name in target.read_text(encoding="utf-8")) is shown
        assert (drawn in written.pictures) is shown


def test_what_two_seeds_decided_in_an_older_book_is_not_decided_today(
    built: tuple[RunStore, str], tmp_path: Path
) -> None:
    write_results(built[0], tmp_path / "results.md", draw=False)
    (answer,) = read_book(tmp_path / "results").answers
    assert answer.rules == RULES
    assert {row.seeds for row in answer.numbers} == {2}
    claimed = [
        (Check.SOME_EVERYWHERE, "above the chance level everywhere"),
        (Check.GROWS, "from one value to the next +3 (+1 to +5)"),
        (Check.GROWS, "from one value to the next +3 (+3 to +3)"),
    ]
    judged = [AnswerVerdict(claim="said so", panel="", agrees=True, sentence=said, check=check)
              for check, said in claimed]  # fmt: skip
    values = answer.model_copy(update={"verdicts": tuple(judged)}).model_dump(mode="json")
    assert [one.agrees for one in StudyAnswer.model_validate(values).judged()] == [True, True, True]
    del values["rules"]  # as it was written before
    few, slope, alike = StudyAnswer.model_validate(values).judged()
    assert (few.agrees, slope.agrees, alike.agrees) == (None, True, None)
    assert few.sentence == "above the chance level everywhere; fewer than 3 seeds, so not decided"
    assert alike.sentence.endswith("(+3 to +3); all seeds alike, so not decided")


def test_a_book_that_cannot_be_read_is_a_sentence(store: RunStore, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    assert read_book(folder) == Book()
    write_book(folder, Book())
    assert read_book(folder) == Book()
    values = json.loads((folder / BOOK).read_bytes())
    for wrong in ({**values, "version": 2}, {**values, "answers": [{"study": "samples"}]}):
        (folder / BOOK).write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=r"cannot read .*results\.json.*move it away to build the results anew"):
            write_results(store, tmp_path / "results.md", draw=False)
    with pytest.raises(InputError, match=r"holds no results\.json"):
        write_results(store, tmp_path / "other.md", draw=False, beside=[tmp_path])


def test_the_projects_own_results_are_what_their_book_says() -> None:
    """Every number on the page that comes with the project stands in the book, which names its runs and command."""
    folder = shipped_folder()
    assert folder is not None
    book, page = read_book(folder), folder.with_suffix(".md")
    text = page.read_text(encoding="utf-8")
    told = [[list(row.values()) for row in table] for part in sections(page).values() for table in tables(part)]
    assert told == [
        [row.cells() for row in answer.numbers if row.panel == panel]
        for name in dict.fromkeys(entry.study for entry in results_entries())
        for answer in book.of(name)
        for panel in answer.panels
    ]
    for answer in book.answers:
        assert f"`{answer.origin.command}`, run `{answer.origin.run_id}`" in text
        assert all(re.fullmatch(r"match-\d{8}-\w{6}", run) for row in answer.numbers for run in row.match_runs)
        assert all((folder / picture.file).is_file() for picture in answer.pictures)
    pictures = {picture.file for answer in book.answers for picture in answer.pictures}
    assert {file.name for file in folder.glob("*.png")} == pictures
    assert sum(file.stat().st_size for file in folder.iterdir()) < 6_000_000


def test_one_html_file_holds_its_pictures(built: tuple[RunStore, str], tmp_path: Path) -> None:
    page = write_results(built[0], tmp_path / "results.html", draw=False).page.read_text(encoding="utf-8")
    assert page.count('<img src="data:image/png;base64,') == 1
    assert "<table>" in page
    assert "@page" in page
    assert "<script" not in page


def test_the_command_writes_where_the_dashboard_looks(
    built: tuple[RunStore, str], cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    store, run_id = built
    code, said, _ = cli("--store", str(store.root), "results", "--no-draw")
    assert code == 0
    assert default_target(store).name in said
    assert run_id in default_target(store).read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"as \.md or \.html, got 'results.txt'"):
        write_results(store, tmp_path / "results.txt")
