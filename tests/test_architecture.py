"""Guards on who may import whom: the engine knows no screen, data flows one way, the attacker sees weights only.

The rules are functions from source texts to sentences, so each is also shown a made-up offender that it must name.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

# Each part of recon_core may import itself and what stands before it, lazily or not; every part has its place here.
ORDER = (
    *("version", "errors", "project_files", "units", "settings_text", "observing", "devices"),
    *("names", "losses", "sources", "config", "presets"),
    *("data", "models", "training", "attacks", "matching", "analysis", "plots", "auditing"),
    *("store", "runs", "views", "scheduling", "studies"),
    *("kinds", "library", "worker", "cli", "__main__"),
)
SCIENCE = {"data", "models", "training", "attacks", "matching", "analysis", "plots", "auditing"}
# Further than the order asks, and through any number of modules in between.
NEVER_REACHES = {
    "attacks": {"data", "training", "matching"},  # the attacker sees weights only
    "store": SCIENCE | {"config", "presets"},  # it keeps whatever it is given
}
BUILDS_ON = {"analyze": ("match",)}  # what leaked is what was matched
SCREEN_WITHOUT = {"torch", "torchvision"}  # pages draw; tensors stay in the engine

Sources = Mapping[str, str]  # dotted module name -> source text; a package goes by its own name


def imports(sources: Sources, module: str) -> set[str]:
    """Every module that `module` names in an import, wherever it stands, as far as the name can be resolved."""
    package = module if _is_package(sources, module) else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(sources[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            submodules = {f"{base}.{alias.name}" for alias in node.names} & set(sources)
            found |= submodules or {base}
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def _is_package(sources: Sources, module: str) -> bool:
    return any(other.startswith(module + ".") for other in sources)


def _called(node: ast.Call) -> str | None:
    match node.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return None


def reachable(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    """All modules that importing `start` can bring in, packages on the way included, `start` itself not."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        for name in arrows.get(module, ()):
            parts = name.split(".")
            for length in range(2 if parts[0] == "recon_core" else 1, len(parts) + 1):  # the root imports lazily
                step = ".".join(parts[:length])
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
    return seen - {start}


def stage(module: str) -> str:
    """`data` for `recon_core.data.digits`; empty outside recon_core."""
    parts = module.split(".")
    return parts[1] if parts[0] == "recon_core" and len(parts) > 1 else ""


def screen_in_engine(sources: Sources) -> list[str]:
    return [
        f"{module} imports {name}"
        for module in sources
        if module.split(".")[0] == "recon_core"
        for name in imports(sources, module)
        if name.split(".")[0] == "streamlit"
    ]


def tensors_on_screen(sources: Sources) -> list[str]:
    return [
        f"{module} imports {name}"
        for module in sources
        if module.split(".")[0] in ("app", "pages", "ui")
        for name in imports(sources, module)
        if name.split(".")[0] in SCREEN_WITHOUT
    ]


def backward_arrows(sources: Sources) -> list[str]:
    faults = []
    arrows = {module: imports(sources, module) for module in sources}
    for module in sources:
        own = stage(module)
        if not own:
            continue
        if own not in ORDER:
            faults.append(f"{module} has no place in the order")
            continue
        after = set(ORDER[ORDER.index(own) + 1 :])
        faults += [f"{module} imports {name}" for name in sorted(arrows[module]) if stage(name) in after]
        forbidden = NEVER_REACHES.get(own, set())
        faults += [f"{module} reaches {name}" for name in sorted(reachable(arrows, module)) if stage(name) in forbidden]
    return faults


def pages_that_know_each_other(sources: Sources) -> list[str]:
    """Folders of ui stand side by side on `ui.shared`; what two of them need belongs there, or in BUILDS_ON."""
    faults = []
    for module in sources:
        own = _folder(module)
        for name in imports(sources, module):
            other = _folder(name)
            if own and other and other not in (own, "shared", *BUILDS_ON.get(own, ())):
                faults.append(f"{module} imports {name}")
    return faults


def _folder(module: str) -> str:
    """`match` for `ui.match.pairs`; empty outside ui."""
    parts = module.split(".")
    return parts[1] if parts[0] == "ui" and len(parts) > 2 else ""


def project_sources() -> dict[str, str]:
    files = [PROJECT / "app.py"]
    for folder in ("pages", "ui", "recon_core"):
        files += sorted((PROJECT / folder).rglob("*.py"))
    sources = {}
    for file in files:
        parts = file.relative_to(PROJECT).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text(encoding="utf-8")
    return sources


@pytest.mark.parametrize("rule", [screen_in_engine, tensors_on_screen, backward_arrows, pages_that_know_each_other])
def test_project_keeps_the_rule(rule) -> None:
    sources = project_sources()
    assert {"app", "recon_core.config"} <= set(sources)
    assert rule(sources) == []


@pytest.mark.parametrize(
    ("rule", "sources", "fault"),
    [
        (
            screen_in_engine,
            {"recon_core.plots": "def draw():\n    import streamlit as st"},
            "recon_core.plots imports streamlit",
        ),
        (
            screen_in_engine,
            {"recon_core.plots": "import importlib\nimportlib.import_module('streamlit.runtime')"},
            "recon_core.plots imports streamlit.runtime",
        ),
        (tensors_on_screen, {"pages.1_Train": "from torch import nn"}, "pages.1_Train imports torch"),
        (tensors_on_screen, {"app": "import torch.nn.functional as F"}, "app imports torch.nn.functional"),
        (
            backward_arrows,
            {"recon_core.data.digits": "from recon_core.plots import grid", "recon_core.plots": ""},
            "recon_core.data.digits imports recon_core.plots",
        ),
        (
            backward_arrows,
            {"recon_core": "", "recon_core.models": "from . import training", "recon_core.training": ""},
            "recon_core.models imports recon_core.training",
        ),
        (
            backward_arrows,
            {
                "recon_core.attacks.loss": "from recon_core import devices",
                "recon_core.devices": "from .data import load",
                "recon_core.data": "",
            },
            "recon_core.attacks.loss reaches recon_core.data",
        ),
        (
            backward_arrows,
            {
                "recon_core.store.runs": "from ..config import TrainConfig",
                "recon_core.store": "",
                "recon_core.config": "",
            },
            "recon_core.store.runs reaches recon_core.config",
        ),
        (
            backward_arrows,
            {
                "recon_core.runs.training": "def f():\n    from recon_core.scheduling import queue",
                "recon_core.scheduling": "",
            },
            "recon_core.runs.training imports recon_core.scheduling",
        ),
        (
            backward_arrows,
            {"recon_core.scheduling.local": "import recon_core.studies.search", "recon_core.studies.search": ""},
            "recon_core.scheduling.local imports recon_core.studies.search",
        ),
        (backward_arrows, {"recon_core.helpers": ""}, "recon_core.helpers has no place in the order"),
        (
            pages_that_know_each_other,
            {"ui.match.pairs": "from ui.train.form import draw", "ui.train.form": ""},
            "ui.match.pairs imports ui.train.form",
        ),
    ],
)
def test_rule_names_an_offender(rule, sources: dict[str, str], fault: str) -> None:
    assert fault in rule(sources)


def test_rules_let_the_right_arrows_pass() -> None:
    sources = {
        "recon_core": "",
        "recon_core.errors": "",
        "recon_core.config": "from recon_core.errors import InputError",
        "recon_core.data": "from recon_core.data.digits import load",
        "recon_core.data.digits": "from recon_core.config import DataConfig",
        "recon_core.models": "import torch\nfrom .config import ModelConfig",
        "recon_core.attacks": "from recon_core.models import Network",
        "recon_core.plots": "from recon_core.analysis import curves\nfrom recon_core import data",
        "recon_core.analysis": "import recon_core.matching as matching",
        "recon_core.matching": "import torch",
        "recon_core.worker": "from recon_core import attacks, store, training",
        "recon_core.training": "",
        "recon_core.store": "from recon_core.errors import InputError",
        "app": "import streamlit as st\nfrom recon_core.store import RunStore",
    }
    assert [fault for rule in (screen_in_engine, tensors_on_screen, backward_arrows) for fault in rule(sources)] == []


def project_files() -> Iterator[Path]:
    """Files a person wrote: neither what tools leave behind nor what runs produce."""
    made = {".git", ".venv", "runs", "out", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
    for folder, subfolders, names in os.walk(PROJECT):
        subfolders[:] = [name for name in subfolders if name not in made]
        yield from (Path(folder, name) for name in names)


def pointing_outside(files: Iterable[Path]) -> list[str]:
    """Files that name a place beside the project, or where the project lies on this machine."""
    outside = (b"../" + b"shared", str(PROJECT).encode())
    return [str(file) for file in files if any(place in file.read_bytes() for place in outside)]


def test_nothing_reads_outside_the_project() -> None:
    files = list(project_files())
    assert PROJECT / "Makefile" in files
    assert pointing_outside(files) == []


@pytest.mark.parametrize("place", ["../" + "shared/notes.md", f"{PROJECT}/README.md"])
def test_a_file_that_points_outside_is_named(place: str, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text("open('shared/notes.md')")
    wrong.write_text(f"open('{place}')")
    assert pointing_outside([right, wrong]) == [str(wrong)]
