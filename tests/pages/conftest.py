"""What all tests of pages share."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from streamlit.components.v2 import manifest_scanner


@pytest.fixture(scope="package", autouse=True)
def _packages_looked_through_once() -> Iterator[None]:
    """Each AppTest asks every installed package whether it brings components: half of the time that a page takes."""
    with pytest.MonkeyPatch.context() as patch:
        scan = functools.cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield
