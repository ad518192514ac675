"""Results: every figure and table of both papers beside ours, as `python -m recon_core results` built them."""

from __future__ import annotations

from ui.results.view import show_results
from ui.shared.pages import RESULTS, show_page

show_page(RESULTS, show_results)
