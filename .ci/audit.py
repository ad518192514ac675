"""Dependency audit for `make lint`: pip-audit over what is installed, less the exceptions that are written down.

A finding that is not excepted fails. No service that answers does not: the audit says that it was skipped.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXCEPTIONS = Path(__file__).resolve().parent / "audit-exceptions.txt"
SERVICES = ("pypi", "osv")  # the second is asked where the first is hidden behind a mirror
SECONDS = 60.0
_SOCKET_SECONDS = 10
# What pip-audit, or the library it asks with, says when nobody answers; any other failure is one of the audit.
_UNREACHABLE = re.compile(
    r"ConnectionError|Timeout|ServiceError|HTTPError|SSLError|ProxyError|may be blocking|Could not connect"
)


class AuditError(Exception):
    """Why there was no audit, although there should have been one."""


def read_exceptions(path: Path) -> dict[str, str]:
    """Reasons by advisory id. A line is an id and a reason; what follows # is left out."""
    reasons = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        advisory, _, reason = line.partition("#")[0].strip().partition(" ")
        if advisory and not reason:
            raise AuditError(f"{path.name} gives no reason for {advisory}; write one behind the id")
        if advisory:
            reasons[advisory] = reason.strip()
    return reasons


def audited(seconds: float) -> list[dict[str, Any]] | None:
    """What the first service that answers knows of each installed package; None where none does."""
    program = shutil.which("pip-audit")
    if program is None:
        raise AuditError("pip-audit was not found; run make lint, which installs it")
    deadline = time.monotonic() + seconds
    for service in SERVICES:
        command = [program, "--vulnerability-service", service, "--timeout", str(_SOCKET_SECONDS)]
        command += ["--format", "json", "--desc", "off", "--progress-spinner", "off"]
        try:
            left = max(0.1, deadline - time.monotonic())
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            return None
        try:
            packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError, TypeError):
            if _UNREACHABLE.search(done.stderr):
                continue
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise AuditError(f"pip-audit ended with code {done.returncode} and said: {said[:300]}") from None
        # A mirror without advisories knows no package at all, and pip-audit calls that "no known vulnerabilities".
        if any("vulns" in package for package in packages):
            return packages
    return None


def judge(packages: list[dict[str, Any]], reasons: dict[str, str], where: str) -> tuple[list[str], list[str]]:
    """Sentences on what must be mended, and on what is only worth knowing."""
    faults: list[str] = []
    used: set[str] = set()
    for package in packages:
        for finding in package.get("vulns", ()):
            names = [finding["id"], *finding.get("aliases", ())]
            if excepted := reasons.keys() & set(names):
                used |= excepted
                continue
            fixes = finding.get("fix_versions")
            mended = f"is mended in {' or '.join(fixes)}" if fixes else "has no mended version yet"
            faults.append(
                f"{package['name']} {package['version']}: {' = '.join(names)} {mended}; raise the version, "
                f"or write the id and why it does no harm here into {where}"
            )
    notes = [
        f"{name} is excepted in {where}, but nothing has it any more; remove the line"
        for name in reasons
        if name not in used
    ]
    if unknown := [package["name"] for package in packages if "vulns" not in package]:
        notes.append(f"the service does not know {', '.join(unknown)}, so nothing is said of them")
    return faults, notes


def main() -> int:
    parser = argparse.ArgumentParser(description="audit the installed packages")
    parser.add_argument("--exceptions", type=Path, default=EXCEPTIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="before the audit is skipped")
    asked = parser.parse_args()
    try:
        reasons = read_exceptions(asked.exceptions)
        packages = audited(asked.seconds)
    except (AuditError, OSError) as error:
        sys.stderr.write(f"audit: {error}\n")
        return 1
    if packages is None:
        sys.stdout.write(
            f"audit skipped: no vulnerability service answered within {asked.seconds:g} s, so no package was checked\n"
        )
        return 0
    faults, notes = judge(packages, reasons, asked.exceptions.name)
    if not faults:
        notes.append(f"{len(packages)} packages, nothing to mend")
    sys.stdout.writelines(f"audit: {note}\n" for note in notes)
    sys.stderr.writelines(f"audit: {fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
