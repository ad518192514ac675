"""The dependency audit of `make lint`, run as it is there, with a stand-in for pip-audit on PATH."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[1]
AUDIT = PROJECT / ".ci" / "audit.py"
EXCEPTIONS = PROJECT / ".ci" / "audit-exceptions.txt"

SOUND = {"name": "numpy", "version": "2.4.6", "vulns": []}
LEAKY = {
    "name": "leaky",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2026-7", "aliases": ["CVE-2026-77", "GHSA-aaaa"], "fix_versions": ["1.0.4", "1.1"]}],
}
HOPELESS = {"name": "hopeless", "version": "3.2", "vulns": [{"id": "CVE-2026-5", "aliases": [], "fix_versions": []}]}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (1)"}
NO_NETWORK = "requests.exceptions.ConnectionError: Failed to resolve 'nowhere'"


class Said(NamedTuple):
    code: int
    out: str
    err: str


Audit = Callable[..., Said]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    """Run the audit on what pip-audit would print, per service, with these lines as the exceptions."""

    def run(*shell: str, exceptions: str = "", seconds: float = 30) -> Said:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if shell:
            program = folder / "pip-audit"
            program.write_text("\n".join(["#!/bin/sh", *shell]) + "\n")
            program.chmod(0o755)
        written = tmp_path / "known.txt"
        written.write_text(exceptions)
        command = [sys.executable, str(AUDIT), "--exceptions", str(written), "--seconds", str(seconds)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={"PATH": f"{folder}:/usr/bin:/bin"}, timeout=60, check=False
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def answer(*packages: dict[str, Any]) -> str:
    """Shell that prints what pip-audit does, and ends as it does."""
    found = any(package.get("vulns") for package in packages)
    return f"echo {shlex.quote(json.dumps({'dependencies': packages, 'fixes': []}))}; exit {int(found)}"


def failure(*lines: str) -> str:
    return f"printf '%s\\n' {shlex.join(lines)} >&2; exit 1"


def test_a_finding_fails_and_names_the_package_and_its_mended_versions(audit: Audit) -> None:
    said = audit(answer(SOUND, LEAKY))
    assert said.code == 1
    assert said.err == (
        "audit: leaky 1.0: PYSEC-2026-7 = CVE-2026-77 = GHSA-aaaa is mended in 1.0.4 or 1.1; raise the version, "
        "or write the id and why it does no harm here into known.txt\n"
    )


def test_a_finding_without_a_mended_version_says_so(audit: Audit) -> None:
    said = audit(answer(SOUND, HOPELESS))
    assert said.code == 1
    assert "hopeless 3.2: CVE-2026-5 has no mended version yet" in said.err


@pytest.mark.parametrize("name", ["PYSEC-2026-7", "CVE-2026-77"])
def test_an_exception_by_any_name_of_the_advisory_lets_it_pass(audit: Audit, name: str) -> None:
    said = audit(answer(SOUND, LEAKY), exceptions=f"# known\n{name} we never call it  # looked at in May\n")
    assert said == Said(0, "audit: 2 packages, nothing to mend\n", "")


def test_an_exception_covers_no_other_finding(audit: Audit) -> None:
    said = audit(answer(LEAKY, HOPELESS), exceptions="CVE-2026-77 we never call it\n")
    assert said.code == 1
    assert "hopeless" in said.err
    assert "leaky" not in said.err


def test_an_exception_without_a_reason_is_refused_in_one_sentence(audit: Audit) -> None:
    said = audit(answer(SOUND), exceptions="CVE-2026-77  # no reason\n")
    assert said == Said(1, "", "audit: known.txt gives no reason for CVE-2026-77; write one behind the id\n")


def test_an_exception_that_nothing_needs_is_reported(audit: Audit) -> None:
    said = audit(answer(SOUND), exceptions="CVE-2026-77 we never call it\n")
    assert said.code == 0
    assert "CVE-2026-77 is excepted in known.txt, but nothing has it any more; remove the line" in said.out


def test_packages_that_the_service_does_not_know_are_named(audit: Audit) -> None:
    said = audit(answer(SOUND, UNKNOWN))
    assert said.code == 0
    assert "the service does not know ours, so nothing is said of them" in said.out


@pytest.mark.parametrize(
    "nobody",
    [
        failure("Traceback", NO_NETWORK),
        failure("ERROR:pip_audit._cli:Tip: your network may be blocking this service."),
        answer(UNKNOWN),  # a mirror that holds packages and no advisories, which pip-audit takes for good news
        "exec sleep 30",
    ],
    ids=["no network", "blocked", "a mirror", "silence"],
)
def test_where_no_service_answers_the_audit_is_skipped_in_one_sentence(audit: Audit, nobody: str) -> None:
    said = audit(nobody, seconds=1 if "sleep" in nobody else 30)
    assert said.code == 0
    assert said.err == ""
    assert said.out.startswith("audit skipped: no vulnerability service answered within")
    assert said.out.count("\n") == 1


def test_a_second_service_is_asked_where_the_first_does_not_answer(audit: Audit) -> None:
    said = audit(f'case "$*" in *pypi*) {failure(NO_NETWORK)};; esac', answer(LEAKY))
    assert said.code == 1
    assert "leaky 1.0" in said.err


def test_an_audit_that_breaks_for_another_reason_is_no_skip(audit: Audit) -> None:
    said = audit(failure("usage: pip-audit", "pip-audit: error: unrecognized arguments"))
    assert said.code == 1
    assert said.err == "audit: pip-audit ended with code 1 and said: pip-audit: error: unrecognized arguments\n"


def test_a_missing_pip_audit_is_no_skip(audit: Audit) -> None:
    said = audit()
    assert said == Said(1, "", "audit: pip-audit was not found; run make lint, which installs it\n")


def test_the_exceptions_written_down_all_have_reasons(audit: Audit) -> None:
    said = audit(answer(SOUND), exceptions=EXCEPTIONS.read_text())
    assert said.code == 0
