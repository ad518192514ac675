"""The report: one file, nothing fetched, nobody's text read as markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recon_core.errors import InputError
from recon_core.store import RunStore
from recon_core.studies.report import newest_study, report_html, write_report
from recon_core.studies.study import StudyConfig, create_study
from tests.studies.tiny_studies import tiny_plan


def test_a_report_holds_everything_and_fetches_nothing(done_study: tuple[RunStore, str], tmp_path: Path) -> None:
    store, run_id = done_study
    page = write_report(store, run_id, tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script[^>]*>.*?</script>", page, re.DOTALL)
    outside = page
    for script in scripts:
        outside = outside.replace(script, "")
    # Nothing but the page itself: no address to load from, and a policy that would stop it.
    assert not re.search(r"""(src|href|action|data)\s*=\s*["']?\s*(https?:)?//""", outside)
    assert not re.search(r"<script[^>]*\ssrc", page)
    assert "url(" not in re.sub(r"data:image[^\"')]*", "", outside)
    assert "default-src 'none'" in page
    assert len(re.findall(r'src="data:image/png;base64,', outside)) == 4  # training images and three values
    assert page.count("Plotly.newPlot") >= 5
    assert sum(len(script) > 1_000_000 for script in scripts) == 1  # the library, once
    for text in ("A tiny study", "weight decay λ", "Settings and versions", "torch", "Decay helps.", "seed"):
        assert text in page
    assert "About &lt;this&gt;." in page
    assert "Images &lt;b&gt;come&lt;/b&gt; back." in page


def test_a_study_is_found_by_name_or_id(done_study: tuple[RunStore, str]) -> None:
    store, run_id = done_study
    assert newest_study(store, "tiny") == newest_study(store, run_id) == newest_study(store, "A tiny study") == run_id
    with pytest.raises(InputError, match="start it with: python -m recon_core study faces"):
        newest_study(store, "faces")
    with pytest.raises(InputError, match="there is no study 'nothing'"):
        newest_study(store, "nothing")


def test_a_study_without_results_has_no_report(store: RunStore, tmp_path: Path) -> None:
    run = create_study(store, StudyConfig(plan=tiny_plan()))
    with pytest.raises(InputError, match="has no finished model yet"):
        report_html(store, run.id)


def test_a_report_that_cannot_be_written(done_study: tuple[RunStore, str], tmp_path: Path) -> None:
    store, run_id = done_study
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*choose another file with --to"):
        write_report(store, run_id, tmp_path / "taken")
