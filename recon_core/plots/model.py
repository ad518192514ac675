"""What can be drawn of the model and of an attack's multipliers."""

from __future__ import annotations

import plotly.graph_objects as go

from recon_core.analysis.models import ModelRow, ModelTable
from recon_core.analysis.multipliers import MultiplierHistogram
from recon_core.analysis.weights import SingularValues
from recon_core.plots.style import BLUE, figure
from recon_core.units import LOG10_LOSS

_ROW = 26  # pixels


def plot_multipliers(histogram: MultiplierHistogram, whose: str) -> go.Figure:
    drawn = figure(f"Multipliers of {whose}", f"{int(histogram.counts.sum())} multipliers", "multiplier λ", "how many")
    centres = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    drawn.add_bar(
        x=centres, y=histogram.counts, width=histogram.edges[1:] - histogram.edges[:-1], marker={"color": BLUE}
    )
    drawn.update_layout(bargap=0, showlegend=False)
    return drawn


def plot_singular_values(values: SingularValues) -> go.Figure:
    frame = values.to_frame()
    drawn = figure(
        "Singular values of the first layer",
        f"effective rank {values.effective_rank:.1f} of {len(values.values)}",
        "rank",
        "singular value",
    )
    drawn.add_scatter(x=frame["rank"], y=frame["singular_value"], mode="lines+markers", line={"color": BLUE})
    drawn.update_yaxes(type="log", dtick=1, exponentformat="power")
    drawn.update_layout(showlegend=False)
    return drawn


def _count(row: ModelRow) -> str:
    if row.reconstructed is None:
        return ""
    return str(row.reconstructed) if row.chance is None else f"{row.reconstructed} (chance level {row.chance})"


def plot_models(table: ModelTable) -> go.Figure:
    """The table itself, as in Haim et al. 2022, Tables 1 and 2."""
    rows = table.rows
    columns: dict[str, list[object]] = {
        "model": [row.name for row in rows],
        "architecture": [row.architecture for row in rows],
        "n": [row.n for row in rows],
        LOG10_LOSS: [f"{row.log10_train_loss:.1f}" for row in rows],
        "train error": [f"{row.train_error:.1%}" for row in rows],
        "test accuracy": ["" if row.test_accuracy is None else f"{row.test_accuracy:.1%}" for row in rows],
        "test loss": ["" if row.test_loss is None else f"{row.test_loss:.3g}" for row in rows],
        "reconstructed": [_count(row) for row in rows],
    }
    ways = sorted({f"{row.ssim}, B = {row.merge_factor:g}" for row in rows if row.ssim and row.merge_factor})
    caption = "; ".join(["as in Haim et al. 2022, Tables 1 and 2", *([f"SSIM {' / '.join(ways)}"] if ways else [])])
    drawn = figure("Models", caption, "", "")
    widths = [max(6, len(name), *(len(str(cell)) for cell in cells)) for name, cells in columns.items()]
    drawn.add_table(
        columnwidth=widths,
        header={"values": [f"<b>{name}</b>" for name in columns], "align": "left", "font": {"size": 12}},
        cells={"values": list(columns.values()), "align": "left", "font": {"size": 12}, "height": _ROW},
    )
    drawn.update_layout(width=9 * sum(widths) + 220, height=220 + _ROW * len(rows))
    return drawn
