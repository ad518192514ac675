"""How it works: the idea of both papers in running text, with figures that can be played with."""

from __future__ import annotations

import streamlit as st

from recon_core.views.circle_frames import RADII, ShippedCircle, load_shipped
from recon_core.views.explanation import (
    Explained,
    approach,
    explained,
    found_by,
    margin_course,
    multipliers,
)
from ui.how.figures import plot_approach, plot_explained, plot_found, plot_margins, plot_multipliers
from ui.shared.figures import show_figure
from ui.shared.pages import GLOSSARY, HOME

TEXT_WIDTH = 860
_HEIGHT = 340
STARTS = (0.05, 0.1, 0.3, 1.0)
DECAYS = (0.0, 0.001, 0.01)


def show_story() -> None:
    circle = _shipped()
    for part in (_margin, _equation, _attack, _starts, _chance):
        with st.container(width=TEXT_WIDTH):
            part(circle)
    with st.container(horizontal=True):
        st.page_link(HOME.file, label="Watch the circle", icon=":material/animation:", query_params={"view": "circle"})
        st.page_link(GLOSSARY.file, label="All terms, defined", icon=":material/menu_book:")


def _margin(circle: ShippedCircle) -> None:
    st.header("A network goes on after it is right", anchor=False)
    st.markdown(
        "A classifier says *plus* where its output $\\Phi(\\theta; x)$ is above zero and *minus* where it is below. "
        "The **margin** of a training sample $x_i$ with label $y_i = \\pm 1$ is $y_i\\,\\Phi(\\theta; x_i)$: above "
        "zero if the answer is right, and the larger the surer. Training does not end when all answers are right. The "
        "loss can always fall a little further, so margins go on growing, and the samples that lag behind, those with "
        "the smallest margin, are the ones that still pull at the weights."
    )
    course = margin_course(circle)
    steps = course.steps.tolist()
    step = st.select_slider("Up to training step", steps, steps[-1], key="how_step")
    place = steps.index(step)
    smallest = float(course.margins[place].min())
    right = int((course.margins[place] > 0).sum())
    st.caption(f"At step {step:,}: {right} of {len(circle.truth.points)} right, the smallest margin is {smallest:.2f}.")
    show_figure(plot_margins(course, place), name="margins", key="how_margins", height=_HEIGHT, show_title=False)


def _equation(circle: ShippedCircle) -> None:
    st.header("In the end the weights are made of samples", anchor=False)
    st.markdown(
        "Followed far enough, training comes to a point where the weights have the largest margin for their size. "
        "Such a point satisfies the **KKT conditions** (Haim et al. 2022, Eq. 2 to 5), and the first of them is an "
        "equation between the weights and the training samples:"
    )
    st.latex(r"\theta = \sum_{i=1}^{n} \lambda_i \, y_i \, \nabla_\theta \Phi(\theta; x_i), \qquad \lambda_i \ge 0")
    st.markdown(
        "Each sample enters with a **multiplier** $\\lambda_i$, which is zero unless the sample lies on the margin. "
        "Whoever has the weights $\\theta$ has the left side, and can compute the gradient on the right for any $x$ "
        "whatever. What is missing are the $x_i$ and the $\\lambda_i$."
    )


def _attack(circle: ShippedCircle) -> None:
    st.header("The attack solves that equation", anchor=False)
    st.markdown(
        "Start with more candidates than there can be samples, anywhere, and move them and their multipliers until "
        "the two sides agree:"
    )
    st.latex(
        r"\min_{x_1 \dots x_m,\ \lambda_1 \dots \lambda_m \ge 0} \Big\| \theta - \sum_{j=1}^{m} \lambda_j \, y_j \, "
        r"\nabla_\theta \Phi(\theta; x_j) \Big\|^2"
    )
    st.markdown(
        "Nothing is known of the training set in doing so. Below is the recorded attack on the circle. It searches, "
        "then starts over from what it found and refines that, where the curves fall; in the end all twenty points "
        "have a candidate near them."
    )
    show_figure(plot_approach(approach(circle)), name="approach", key="how_approach", height=_HEIGHT, show_title=False)
    st.markdown(
        "Candidates that end up with a large multiplier explain part of the weights, and sit at a training point. "
        "Those with a small one hardly act, and may lie anywhere: dropping them cleans the picture."
    )
    threshold = st.slider("Drop multipliers below", 0.0, 20.0, circle.threshold, 0.5, key="how_lam")
    found = multipliers(circle)
    kept = found.values >= threshold
    near = int((found.distances[kept] <= RADII[0]).sum())
    st.caption(f"{int(kept.sum())} candidates are kept, {near} of them within {RADII[0]:g} of a training point.")
    show_figure(
        plot_multipliers(found, threshold), name="multipliers", key="how_multipliers", height=_HEIGHT, show_title=False
    )


def _starts(circle: ShippedCircle) -> None:
    st.header("Why small starts and weight decay matter", anchor=False)
    st.markdown(
        "The equation holds for what training has *added*. A network that starts with large weights carries that start "
        "along: noise that no sample explains. A small start is soon outgrown. **Weight decay** forgets the start "
        "altogether: where it balances the loss, the weights are *exactly* a sum over the samples "
        "(Buzaglo et al. 2023), whatever they were at first. The **KKT residual** says how much of the weights the "
        "samples leave unexplained, from 1 (all of it) to 0. Try it on a small network of forty neurons and six "
        "points, trained while you look:"
    )
    left, right = st.columns(2)
    start = left.select_slider("Initial weights (std. dev.)", STARTS, 0.1, key="how_start")
    decay = right.select_slider("Weight decay", DECAYS, 0.0, key="how_decay")
    chosen, usual = _explained(start, decay), _explained(1.0, 0.0)
    learnt = (
        "all six points are learnt"
        if chosen.margins[-1] > 0
        else "it does not learn all six points: decay holds it down"
    )
    st.caption(
        f"In the end {chosen.residuals[-1]:.0%} is unexplained, and {learnt}. A start of 1 without decay: "
        f"{usual.residuals[-1]:.0%}."
    )
    show_figure(plot_explained(chosen, usual), name="residual", key="how_residual", height=_HEIGHT, show_title=False)


def _chance(circle: ShippedCircle) -> None:
    st.header("What a count is worth", anchor=False)
    st.markdown(
        "Many candidates always hit something. So every count here stands beside its **chance level**: how many "
        "training samples would count as found although nothing leaked. It is the largest of several controls: the "
        "same attack on an untrained network, the mean image alone, and images that were never trained on. A count "
        "means something as far as it is above that level."
    )
    show_figure(
        plot_found(found_by(circle), len(circle.truth.points)),
        name="chance",
        key="how_chance",
        height=240,
        show_title=False,
    )


@st.cache_resource(max_entries=1, show_spinner=False)
def _shipped() -> ShippedCircle:
    return load_shipped()


@st.cache_data(max_entries=32, show_spinner=False)
def _explained(start: float, decay: float) -> Explained:
    return explained(start, decay)
