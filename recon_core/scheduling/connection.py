"""Connect to a Ray cluster and send the project along."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recon_core
from recon_core.config import parse_config
from recon_core.errors import InputError
from recon_core.project_files import INSTALLED
from recon_core.scheduling.protocol import Places

_INSTALL = "pip install -r requirements-cluster.txt"
_HOW = "start one with: ray start --head, and name it auto, host:6379, or ray://host:10001 from outside"
_PROJECT = Path(recon_core.__file__).parents[1]
# Only the engine and the embedded images are sent: a store of any size may lie beside them.
_SENT = ("recon_core", "assets", INSTALLED)
_NOT_SENT = ("/assets/screens", "__pycache__")
_ANSWER_SECONDS = 5.0


def _import_ray() -> Any:
    # Else whatever asks Ray for something after it has left a cluster starts a new one, here.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError:
        raise InputError(f"a cluster needs Ray, which is not installed; install it with: {_INSTALL}") from None
    return ray


def connect(address: str) -> Any:
    """Ray, connected. Raises a sentence where there is no cluster at `address`."""
    ray = _import_ray()
    knock(address)
    others = [f"/{name}" for name in sorted(os.listdir(_PROJECT)) if name not in _SENT]
    environment = {"working_dir": str(_PROJECT), "excludes": [*others, *_NOT_SENT]}
    try:
        with _keeping_signals():
            ray.init(
                address=address,
                runtime_env=environment,
                log_to_driver=False,
                logging_level="ERROR",
                ignore_reinit_error=True,
                namespace="afterimage",
            )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address == "auto":
            raise InputError(f"this machine is part of no Ray cluster; {_HOW}") from None
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"no Ray cluster lets us in at {address!r} ({reason}); see that Ray has the same version and, if the "
            "cluster asks for one, RAY_AUTH_TOKEN here as there"
        ) from None
    return ray


@contextlib.contextmanager
def _keeping_signals() -> Iterator[None]:
    """Ray ends the process at once when it is asked to stop; our runs write a checkpoint first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def knock(address: str) -> None:
    """Raise where nothing answers at that address; Ray itself would retry for minutes first."""
    if parse_config(Places, {"cluster": address}).cluster is None:
        raise InputError(f"{address!r} is this machine and no cluster; {_HOW}")
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise InputError(f"no Ray cluster answers at {address!r} ({error}); {_HOW}") from None
