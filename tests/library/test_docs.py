"""What the documents say is there, is there: links, paths, commands, the order of packages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recon_core.version import __version__
from tests.test_architecture import ORDER

PROJECT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/cost.md", "docs/glossary.md"]
DOCUMENTS += ["docs/serving.md", "docs/definitions.md", "docs/results.md", "assets/README.md"]
FOLDERS = ("recon_core", "ui", "pages", "tests", "docs", "examples", "assets", "benchmarks")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./]*|[\w.]+\.(?:py|md|toml|txt))`")
MAKE = re.compile(r"(?:^|`)make ([a-z.][a-z-]*)", re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = PROJECT / name
    links = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_exist(name: str) -> None:
    found = PATH.findall((PROJECT / name).read_text())
    files = {file.name for folder in FOLDERS for file in (PROJECT / folder).rglob("*.*")}
    assert [path for path in found if not (PROJECT / path).exists() and path not in files] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_exist(name: str, cli: Callable[..., tuple[int, str, str]]) -> None:
    text = (PROJECT / name).read_text()
    named = set(re.findall(r"(?:python -m recon_core|\bafterimage) ([a-z][a-z-]+)", text))
    listed = cli("--help")[1]
    assert [command for command in named if f" {command} " not in listed] == []
    targets = set(re.findall(r"^([a-z.][a-z-]*):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE.findall(text)) <= targets


def test_the_picture_of_the_house_is_the_order_of_the_tests() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", page, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(ORDER)
    picture = page[page.index("```mermaid") :]
    for name in ("store", "runs", "views", "scheduling", "studies", "kinds", "library", "cli", "worker"):
        assert f"    {name}[" in picture


def test_the_version_is_the_one_that_is_described() -> None:
    assert f"version {__version__}" in (PROJECT / "README.md").read_text()
    assert f"\n## {__version__}" in (PROJECT / "CHANGELOG.md").read_text()


def test_the_five_lines_are_those_of_the_package() -> None:
    import recon_core as rc

    shown = re.search(r"```python\n(import recon_core as rc\n.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    code = [line.partition("  #")[0].rstrip() for line in shown[1].splitlines()]
    assert code == [line.strip() for line in (rc.__doc__ or "").splitlines() if line.startswith("    ")]
