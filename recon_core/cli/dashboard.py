"""`dashboard`: the app, in a browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from recon_core.cli.stores import store_of
from recon_core.project_files import project_file
from recon_core.store.store import STORE_VARIABLE


def dashboard(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine (127.0.0.1).")] = 8501,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser.")] = False,
) -> None:
    """Open the dashboard in a browser. Ctrl-C stops it; runs that are at work continue."""
    arguments = ["streamlit", "run", str(project_file("serve.py")), "--server.port", str(port)]
    arguments += ["--server.headless", "true"] if headless else []
    os.environ[STORE_VARIABLE] = str(store_of(context).root.absolute())
    os.execv(sys.executable, [sys.executable, "-m", *arguments])
