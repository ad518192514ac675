"""One network: how its training goes, what came out, and for somebody else's checkpoint what was inferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from recon_core.analysis.frames import csv_text
from recon_core.analysis.training import TimeAxis, TrainingCurves, layer_readings
from recon_core.analysis.training_text import UNKNOWN, layers_sentence, margin_sentence, percent
from recon_core.config import BiasMode
from recon_core.models import Architecture
from recon_core.plots.training import (
    plot_errors,
    plot_gradient_norm,
    plot_loss,
    plot_margin_histogram,
    plot_margins,
    plot_residuals,
)
from recon_core.runs.training_plan import layers_of
from recon_core.store import RunState, RunStore, default_root
from recon_core.units import LOG10_LOSS
from ui.shared.downloads import offer_file
from ui.shared.figures import show_figure
from ui.shared.formatting import plain, sentence, signed
from ui.shared.pages import RECONSTRUCT
from ui.shared.store import RunDetails
from ui.train.cached import SampleFacts, measured, samples_of

_HEIGHT = 340
_AXIS_NAMES = {TimeAxis.STEPS: "Steps", TimeAxis.SECONDS: "Seconds", TimeAxis.EPOCHS: "Epochs of gradient descent"}
_ACTIVATION = "ReLU (assumed: files do not say)"
_BIASES = {
    BiasMode.FIRST: "in the first layer",
    BiasMode.HIDDEN: "in all hidden layers",
    BiasMode.NONE: "none",
}


def show_network(run: RunDetails) -> None:
    """The body of a run's view, below its state and actions."""
    if run.status.state is RunState.DONE and st.button(
        "Reconstruct its training data", key=f"attack-{run.id}", icon=":material/arrow_forward:", type="primary"
    ):
        st.switch_page(RECONSTRUCT.file, query_params={"model": run.id})
    if run.kind == "model":
        _show_inferred(run)
    else:
        _show_training(run)
    _offer_measurements(run)


def choose_time_axis(curves: list[TrainingCurves], key: str) -> TimeAxis:
    """What the charts' x axis counts."""
    options = [axis for axis in TimeAxis if axis is not TimeAxis.EPOCHS or any(run.counts_epochs for run in curves)]
    chosen = st.segmented_control(
        "Horizontal axis",
        options,
        default=TimeAxis.STEPS,
        required=True,
        format_func=lambda axis: _AXIS_NAMES[axis],
        key=key,
        help="A step of flow stands for ever more epochs of plain gradient descent; their axis is logarithmic.",
        bind="query-params",
        persist_state="session",
    )
    return chosen if chosen in options else TimeAxis.STEPS


def _show_training(run: RunDetails) -> None:
    (curves, version), samples = measured(run.id), samples_of(run.id)
    if not len(curves.steps):
        if run.status.state in (RunState.QUEUED, RunState.RUNNING):
            st.caption("The first measurement is on its way.")
        return
    _show_figures(run, curves)
    _show_reading(run, curves, samples)
    axis = choose_time_axis([curves], "t_axis")
    charts = {
        "loss": plot_loss,
        "error": plot_errors,
        "margins": plot_margins,
        "kkt": plot_residuals,
        **({"gradient": plot_gradient_norm} if curves.decays else {}),
    }
    columns = st.columns(2, gap="large")
    for place, (name, plot) in enumerate(charts.items()):
        with columns[place % 2]:
            shown = f"{version} {axis}"
            show_figure(
                drawn_once(f"{name} {shown}", partial(plot, curves, axis)),
                name=f"{run.id}-{name}",
                key=f"{name}-{run.id}",
                table=curves,
                height=_HEIGHT,
                version=shown,
            )
    if samples is not None:
        with columns[len(charts) % 2]:
            show_figure(
                drawn_once(f"histogram {version}", partial(plot_margin_histogram, samples.histogram)),
                name=f"{run.id}-margin-histogram",
                key=f"histogram-{run.id}",
                table=samples.histogram,
                height=_HEIGHT,
                version=version,
            )


@st.cache_resource(max_entries=256, show_spinner=False)
def drawn_once(what: str, _draw: Callable[[], go.Figure]) -> go.Figure:
    """A figure, made once for everybody who looks: making one takes a twentieth of a second."""
    return _draw()


def _show_figures(run: RunDetails, curves: TrainingCurves) -> None:
    numbers = run.result or run.last_metrics
    of = f" of {run.result['n']}" if "n" in run.result else ""
    shown = {
        "Training error": percent(numbers.get("train_error")),
        "Test accuracy": percent(1.0 - curves.last_test_error),
        LOG10_LOSS: signed(float(curves.log10_loss[-1])),
        "On the margin": f"{numbers.get('on_margin', UNKNOWN)}{of}",
    }
    for column, (label, value) in zip(st.columns(len(shown)), shown.items(), strict=True):
        column.metric(label, value, border=True)


def _show_reading(run: RunDetails, curves: TrainingCurves, samples: SampleFacts | None) -> None:
    """The KKT residuals in plain words."""
    sentences = [sentence(layers_sentence(layer_readings(curves.last_residuals)))]
    if samples is not None and run.result.get("n"):
        sentences.append(margin_sentence(run.result["on_margin"], run.result["n"], samples.margin_share))
    st.markdown(
        f"**{plain(sentences[0])}** {plain(' '.join(sentences[1:]))}",
        help="A network at its margin is a sum of its training samples' gradients, and that is what an attack reads "
        "off. Each layer is compared with the best such sum of its own: the KKT residual is the norm of the remainder "
        "over the norm of the layer, and its square is the share of the squared weights left unexplained.",
    )


def _show_inferred(run: RunDetails) -> None:
    """What a checkpoint was taken to be."""
    if not run.result:
        return
    architecture = Architecture.from_json(run.result["architecture"])
    show_architecture(architecture, run.result["notes"])


def _biases(architecture: Architecture) -> str:
    if architecture.biases is None:
        return _BIASES[architecture.bias]
    if all(architecture.biases):
        return "in all layers"
    numbers = [str(number) for number, there in enumerate(architecture.biases, 1) if there]
    return f"in layers {', '.join(numbers)}"


def show_architecture(architecture: Architecture, notes: Sequence[str]) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**What was inferred**")
        st.table(
            {
                "network": plain(str(architecture)),
                "input": plain(" x ".join(map(str, architecture.input_shape))),
                "outputs": str(architecture.outputs),
                "activation": plain(_ACTIVATION if architecture.activation == "relu" else architecture.activation),
                "biases": plain(_biases(architecture)),
            },
            border="horizontal",
            hide_header=True,
        )
        for note in notes:
            st.caption(plain(note))
    with right:
        st.markdown("**Layers**")
        layers = layers_of(architecture)
        st.dataframe(
            pd.DataFrame(
                {
                    "layer": range(1, len(layers) + 1),
                    "kind": [layer.name for layer in layers],
                    "weights": [" x ".join(map(str, layer.shape)) for layer in layers],
                    "bias": ["yes" if layer.bias else "no" for layer in layers],
                    "parameters": [layer.parameters for layer in layers],
                }
            ),
            hide_index=True,
            alt="The layers of the network with the shapes of their weights",
        )


def _offer_measurements(run: RunDetails) -> None:
    if run.kind == "train":
        offer_file(
            "Measurements as CSV",
            lambda: csv_text(pd.DataFrame(RunStore(default_root()).open(run.id).metrics())),
            f"{run.id}-metrics.csv",
            key=f"csv-{run.id}",
            disabled=not run.last_metrics,
        )
