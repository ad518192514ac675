"""The copies recipe: images first told apart by their edges, then everything fitted to the stationarity equation.

1. Unmixing (`unmixing`): directions of the row space that look like images. It needs the first layer only, works for
   every loss and depth, and finds most images that stand in the weights at all, up to sign and scale.
2. Fitting: each component gets a label, a multiplier and a sign, which gates choose for all together (`signs`). They
   are held in the search of one start of `fast`, which looks for the rest from random points, and all are refined
   together. Refining adds the gradient of the edge ratio r(x) (`priors`), for each candidate scaled to rho times the
   norm of the loss's own gradient there, rho growing from 0: without it the truth is not even a resting point, since
   candidates fit the model's distance from its KKT point with pixels.
3. Confirming: the components are refined once more, each with both signs, at full rho. Signs are chosen again
   (`signs`), now that the larger multiplier speaks too. Confidence is the probability of the sign, from three kinds of
   evidence (`Evidence`) as far as gates and multipliers agree over all components, times that of being an image.

At its end it hands over components and what refining made of everything, and last the components with the other sign,
since a sign may be wrong. Where inputs are no images, or with prior off or box, it is one start of `fast`.

On development draws (50 images, SSIM > 0.4, > 0.7 and > 0.9 in the 11x11 window, B = 1.1, one seed) unmixing alone
found 49 / 49 / 41 CIFAR-10 images with weight decay and 41 / 37 / 24 without, all of it 50 / 50 / 44 and 44 / 37 / 25,
where `fast` finds 30 and 19 to 24 good; 35 and 46 good digits. What unmixing finds is nearly always an image; what goes
wrong is its sign. Tried for signs without success: how far the backward signal at x and at -x lies outside the column
space of W_1 (it tells true images apart by a factor of 5 to 17, components hardly: an image's complement of gates
lies in that space too); descending that with either sign first; skewness (right for digits, a coin for photographs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from recon_core.attacks.fast import MODULE_ITERATIONS, PACE_OF_CLASSES, FastRecipe, FastSettings, fast_cost
from recon_core.attacks.priors import EdgePrior, describes_images
from recon_core.attacks.registry import Attack, Cost, NetworkSize, register
from recon_core.attacks.settings import RECIPE, Hinge, Prior
from recon_core.attacks.signs import JointSigns
from recon_core.attacks.stationarity import Evaluation
from recon_core.attacks.stepper import Candidates, Found, Measurement, make_engine
from recon_core.attacks.target import Target
from recon_core.attacks.terms import box_prior
from recon_core.attacks.unmixing import Unmixing
from recon_core.config import Task
from recon_core.errors import InputError
from recon_core.models import Architecture

_SHARP_GATE = 200.0
# Of the multipliers' unit: below it a held component would never move again.
_LEAST_MULTIPLIER = 0.05
_FIT_STEPS = 2000
# Log odds of a sign for each unit of evidence, and how much a margin can be worth. Logistic regression on 828
# components of 23 development models that were near an image.
_ODDS_OF_MARGIN, _ODDS_OF_SHARE, _ODDS_OF_FITTED = 1.32, 1.5, 2.05
_LARGEST_MARGIN = 2.0
# f lower than that of mixtures by this much is that of an image. On development models it was for nine of ten
# components near an image; of half of the others it is lower by less than 0.01.
_SPARSER = 0.2
# A candidate shows a component by this power of their cosine; below this much multiplier in all, hardly.
_LIKENESS, _UNSHOWN = 4, 0.2
# Of centred pixels, from darkest to brightest.
_PIXEL_SPAN = 1.3
# Below, every share would be rounded to nothing.
_FEWEST_ITERATIONS = 20


class CopiesSettings(FastSettings):
    """Those of its start of `fast`, and what candidates are held to."""

    recipe: str = Field("copies", description=RECIPE)
    prior: Prior = Field(
        Prior.NATURAL, description="natural (sparse edges), box (the papers' bounds on pixels) or off; off in the plane"
    )
    unmix_share: float = Field(0.45, gt=0.0, lt=0.5, description="share of the iterations spent on unmixing")
    confirm_share: float = Field(0.15, gt=0.0, lt=0.5, description="share of the iterations that confirm components")
    unmix_starts: int | None = Field(
        None, ge=1, le=100_000, description="directions each round of unmixing looks for together; at most the rank"
    )
    rounds: int = Field(2, ge=1, le=100, description="rounds of unmixing, each from another rotation")
    rho: float = Field(1.0, ge=0.0, description="strength of the natural prior at the end, of the loss's slope")
    weight_prior: float = Field(1.0, ge=0.0, description="weight of the box prior in the second stage")
    box_low: float = Field(-1.0, description="smallest centred pixel that the box allows")
    box_high: float = Field(1.0, description="largest centred pixel that the box allows")


class Group(NamedTuple):
    """Candidates inside the recipe: coordinates z (k, r), magnitudes q (k,) of the coefficients, labels (k,)."""

    z: Tensor
    q: Tensor
    labels: Tensor


class Evidence(NamedTuple):
    """Signs (k,) of the components, and what speaks for each of them, (k,)."""

    signs: Tensor
    margins: Tensor
    """By how much the gates and multipliers together lose when it turns."""
    gates: Tensor
    """A difference of cosines."""
    share: Tensor
    """By how much its multiplier is larger than that of the opposite sign, relatively."""
    fitted: Tensor
    """The same of candidates that were fitted to the whole network, held to one sign."""


class GuidedStart(FastRecipe):
    """One start of `fast`, its refining guided by a prior, some candidates held in its search."""

    def __init__(self, target: Target, settings: CopiesSettings, seed: int) -> None:
        super().__init__(target, settings, seed)
        self.prior_settings = settings
        self.rho_grows = True
        self.edges: EdgePrior | None = None
        shape = target.architecture.input_shape
        if settings.prior is Prior.NATURAL and describes_images(shape):
            self.edges = EdgePrior(self.basis, shape)
        self.held = torch.zeros_like(self.labels, dtype=torch.bool)

    def only_refine(self, group: Group, signs: Tensor) -> None:
        """From these candidates, as many as there are, without a search and at full rho."""
        for name, values in (("z", group.z), ("q", group.q), ("labels", group.labels), ("signs", signs)):
            getattr(self, name).copy_(values)
        self.search_steps, self.rho_grows = 0, False

    def hold(self, kept: Group) -> None:
        """Each takes the next place that has its label; where none is left it is not held."""
        for label in sorted(set(kept.labels.tolist())):
            places, own = (self.labels == label).nonzero()[:, 0], (kept.labels == label).nonzero()[:, 0]
            count = min(len(places), len(own))
            self.z[places[:count]], self.q[places[:count]] = kept.z[own[:count]], kept.q[own[:count]]
            self.held[places[:count]] = True

    def _search(self, point: Evaluation) -> None:
        point.gradients.x[self.held] = 0.0
        super()._search(point)

    def _refined_slope(self, point: Evaluation) -> Tensor:
        slope, settings = super()._refined_slope(point), self.prior_settings
        if self.edges is not None:
            span = max(1, self.settings.iterations - self.search_steps - 1)
            share = (self.iteration - self.search_steps) / span if self.rho_grows else 1.0
            edges = self.edges.ratio(self.z).gradient
            tiny = torch.finfo(slope.dtype).tiny
            scale = slope.norm(dim=1, keepdim=True) / edges.norm(dim=1, keepdim=True).clamp_min(tiny)
            guided: Tensor = slope + edges * (settings.rho * share * scale)
            return guided
        if settings.prior is Prior.BOX:
            x = self.z @ self.basis.T
            beyond = box_prior(x, settings.box_low, settings.box_high, Hinge.SQUARED).gradient
            return slope + beyond @ self.basis * settings.weight_prior
        return slope


class CopiesRecipe:
    """State: that of the unmixing, the oriented components, and that of each start so far."""

    def __init__(self, target: Target, settings: CopiesSettings, seed: int) -> None:
        self.target, self.settings, self.seed = target, settings, seed
        shape, total = target.architecture.input_shape, settings.iterations
        unmixes = settings.prior is Prior.NATURAL and describes_images(shape) and total >= _FEWEST_ITERATIONS
        self.unmix_steps = round(total * settings.unmix_share) if unmixes else 0
        self.confirm_steps = max(1, round(total * settings.confirm_share)) if unmixes else 0
        fit_steps = total - self.unmix_steps - self.confirm_steps
        self.start = GuidedStart(target, settings.model_copy(update={"iterations": fit_steps}), seed)
        self.unmixing: Unmixing | None = None
        if unmixes:
            self.unmixing = Unmixing(
                self.start.basis,
                shape,
                directions=settings.unmix_starts or self.start.basis.shape[1],
                rounds=settings.rounds,
                steps=self.unmix_steps,
                seed=seed,
            )
        self.components = Group(self.start.z[:0], self.start.q[:0], self.start.labels[:0])
        self.confirming: GuidedStart | None = None
        self.confirmed = self.start.labels[:0]
        self.iteration = 0
        self.notes: list[str] = []

    @property
    def _confirms_from(self) -> int:
        return self.settings.iterations - self.confirm_steps

    def step(self) -> None:
        """Unmixing, the start, confirming."""
        if self.unmixing is not None and not self.unmixing.done:
            self.unmixing.step()
            if self.unmixing.done:
                self._orient(self.unmixing.components())
        elif self.iteration < self._confirms_from:
            self.start.step()
            self.notes += self.start.take_notes()
        elif 2 * len(self.components.z) >= self.target.architecture.outputs:  # one candidate a class is the least
            if self.confirming is None:
                self._begin_confirming()
            assert self.confirming is not None
            self.confirming.step()
            self.notes += self.confirming.take_notes()
        self.iteration += 1

    def _begin_confirming(self) -> None:
        assert self.unmixing is not None
        # No more of them can be images than there are dimensions.
        count = self.components.z.shape[1]
        self.confirmed = self.unmixing.stability().argsort(descending=True, stable=True)[:count]
        z = self.components.z[self.confirmed]
        both = torch.cat([z, -z])
        labels = self._labelled(both)
        # Not below where `fast` starts: of two signs, neither may begin as good as refuted.
        q = self._fitted(both, labels).clamp_min(float(self.start.unit) * self.settings.lam_min)
        group = Group(both, q, labels)
        changes = {"iterations": self.confirm_steps, "m": len(both)}
        self.confirming = GuidedStart(self.target, self.settings.model_copy(update=changes), self.seed)
        self.confirming.only_refine(group, self._signs(labels))

    def _labelled(self, z: Tensor) -> Tensor:
        """What the network says of coordinates z, (k,) class indices."""
        x = (z @ self.start.basis.T).reshape(-1, *self.target.architecture.input_shape)
        parameter = next(self.target.network.parameters())
        outputs = self.target.network(x.to(parameter)).to(z.device)
        if self.target.objective is Task.MULTICLASS:
            best: Tensor = outputs.argmax(1)
            return best
        above: Tensor = outputs.flatten() > 0
        return above.long()

    def _signs(self, labels: Tensor) -> Tensor:
        return (torch.ones_like(labels) if self.target.objective is Task.MULTICLASS else labels * 2 - 1).to(
            self.start.z
        )

    def _fitted(self, z: Tensor, labels: Tensor) -> Tensor:
        """Multipliers (k,) >= 0 with which candidates z explain all layers best."""
        engine, signs = self.start.search_engine, self._signs(labels)
        gram = engine.gradient_gram(z, labels, _SHARP_GATE) * signs[:, None] * signs
        slope = engine.evaluate(z, torch.zeros_like(signs), labels, _SHARP_GATE).gradients.coefficients
        return nonnegative_fit(gram, -0.5 * slope * signs)

    def _joint(self, directions: Tensor) -> JointSigns:
        """Of unit directions (k, r), which get an input's size."""
        engine, z = self.start.search_engine, directions * self.start.input_norm
        both = torch.cat([z, -z])
        labels = self._labelled(both)
        signs = self._signs(labels)
        deltas = engine.evaluate(both, torch.zeros_like(signs), labels, _SHARP_GATE).first_deltas
        assert deltas is not None
        with_sign, against = (deltas * signs[:, None]).chunk(2)
        return JointSigns(z, engine.first_aim, self.target.anchored().bias, with_sign, against)

    def _evidence(self) -> Evidence:
        """For the signs of the components as they were oriented."""
        z = normalize(self.components.z)
        share = torch.zeros_like(self.components.q)
        if self.confirming is not None:
            mine, other = self.confirming.steady().q.chunk(2)
            share[self.confirmed] = (mine - other) / (mine + other)
        share = share.cpu().double()
        joint = self._joint(z)
        as_oriented, by_share = torch.ones_like(share), torch.where(share >= 0, 1.0, -1.0).double()
        signs = joint.best([as_oriented, by_share, joint.alone()], share)
        fitted_z, fitted_q, *_ = self.start.steady()
        cosines = (normalize(fitted_z) @ z.T).cpu().double()
        shown = (fitted_q / self.start.unit).cpu().double()[:, None] * cosines.abs().pow(_LIKENESS) * cosines.sign()
        fitted = shown.sum(0) / (shown.abs().sum(0) + _UNSHOWN)
        chosen, opposite = joint.agreement(signs[None])
        # The null space chooses signs, but is sure of all alike: with its part two of 47 certain ones were wrong.
        margins = joint.margins(signs, share, null=False)
        return Evidence(signs, margins, (chosen - opposite)[0], share * signs, fitted * signs)

    def _probability(self, evidence: Evidence) -> Tensor:
        """Of each component (k,), that it is an image and has the right sign."""
        assert self.unmixing is not None
        return self._likely_images() * self._likely_signs(evidence)

    def _likely_images(self) -> Tensor:
        """(k,): rounds of unmixing come to it, and its edges are sparser than those of mixtures.

        More of them than the row space has dimensions cannot all be directions of its own. They may still be images,
        since noise hides some dimensions, so half of that counts, in the logarithm.
        """
        assert self.unmixing is not None
        count, rank = self.components.z.shape
        sparse = (self.unmixing.sparser() / _SPARSER).clamp(0.0, 1.0)
        likely: Tensor = self.unmixing.stability() * sparse * math.sqrt(min(1.0, rank / count))
        return likely.cpu().double()

    @staticmethod
    def _likely_signs(evidence: Evidence) -> Tensor:
        """(k,): where gates and multipliers often contradict each other, as on digits, neither is worth much."""
        common = evidence.gates * evidence.share
        worth = (common.sum() / common.abs().sum().clamp_min(torch.finfo(common.dtype).tiny)).clamp_min(0.0)
        odds = (
            _ODDS_OF_MARGIN * evidence.margins.clamp_max(_LARGEST_MARGIN)
            + _ODDS_OF_SHARE * evidence.share
            + _ODDS_OF_FITTED * evidence.fitted
        )
        likely: Tensor = (worth.square() * odds).sigmoid()
        return likely

    def _orient(self, directions: Tensor) -> None:
        """Give unit directions (k, r) an input's size, the sign that the gates support, a label and a multiplier."""
        count, joint = len(directions), self._joint(directions)
        signs = joint.best([joint.alone()]).to(directions)
        z = directions * (signs[:, None] * self.start.input_norm)
        labels = self._labelled(z)
        q = self._fitted(z, labels)
        self.components = Group(z, q, labels)
        best = q.argsort(descending=True, stable=True)[: self.settings.m]
        least = self.start.unit * _LEAST_MULTIPLIER
        self.start.hold(Group(z[best], torch.maximum(q[best], least), labels[best]))
        self.notes.append(f"unmixing found {count} components")

    def measure(self) -> Measurement:
        """While unmixing, the residual of multipliers 0: nothing is explained yet."""
        now = self.confirming or self.start
        if self.unmixing is None or self.unmixing.done:
            return self._with_prior(now.measure(), now.z)
        z, labels = self._shown()
        zero = torch.zeros_like(self.start.unit)
        loss = self.start.search_engine.evaluate(z, torch.zeros_like(z[:, 0]), labels, self.settings.alpha).loss
        return self._with_prior(Measurement(loss, zero, zero, self.settings.alpha), z)

    def _with_prior(self, measured: Measurement, z: Tensor) -> Measurement:
        """`prior` is the mean of r, 0 without it."""
        edges = self.start.edges
        return measured if edges is None else measured._replace(prior=edges.ratio(z).value.mean())

    def _shown(self) -> tuple[Tensor, Tensor]:
        """m of the directions: components so far, then starts under way, over and over."""
        assert self.unmixing is not None
        found = torch.cat([self.unmixing.components(), self.unmixing.under_way()])
        z = found[torch.arange(self.settings.m, device=found.device) % len(found)] * self.start.input_norm
        return z, self._labelled(z)

    def candidates(self) -> Candidates:
        """The m that are worked on."""
        if self.unmixing is None or self.unmixing.done:
            return self.start.candidates()
        z, labels = self._shown()
        return Candidates(z @ self.start.basis.T, torch.zeros_like(z[:, 0]), labels)

    def found(self) -> Found:
        """Components, refined candidates, and last the components with the other sign."""
        now = self.start.candidates()
        if self.unmixing is None:
            return Found(now, None)
        z, q, labels = self.components
        if not len(z):
            return Found(self.candidates(), torch.zeros_like(self.candidates().multipliers))
        sure, kept = torch.zeros_like(q), torch.ones_like(q, dtype=torch.bool)
        refined = [now]
        if self.confirming is not None:
            count = len(self.confirmed)
            evidence = self._evidence()
            sure[self.confirmed] = self._probability(evidence).to(q)[self.confirmed]
            kept = (evidence.signs > 0).to(z.device)
            first = kept[self.confirmed]
            which = torch.arange(count, device=z.device) + count * ~first
            refined.append(Candidates(*(values[which] for values in self.confirming.candidates())))
        chosen = torch.where(kept[:, None], z, -z)
        x, unit = chosen @ self.start.basis.T, self.settings.m
        # A component has no scale of its own; images use most of the range that pixels have.
        x = x * (_PIXEL_SPAN / (x.amax(1, keepdim=True) - x.amin(1, keepdim=True)))
        likelier = Candidates(x, torch.where(kept, q, 0.0) * unit, torch.where(kept, labels, self._labelled(-z)))
        last = Candidates(-x, torch.where(kept, 0.0, q) * unit, torch.where(kept, self._labelled(-z), labels))
        together = Candidates(*(torch.cat(values) for values in zip(likelier, *refined, last, strict=True)))
        return Found(together, self._inherited(together.x @ self.start.basis, chosen, sure))

    @staticmethod
    def _inherited(z: Tensor, components: Tensor, confidence: Tensor) -> Tensor:
        """Of the component it resembles most, as far as it does; 0 where it is the negative of all."""
        cosines = (normalize(z) @ normalize(components).T).clamp_min(0.0)
        best, which = cosines.max(1)
        return confidence[which] * best

    def take_notes(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def state(self) -> dict[str, Tensor]:
        state = {f"start.{name}": tensor for name, tensor in self.start.state().items()}
        state |= {"copies": torch.tensor([self.iteration]), "held": self.start.held}
        if self.unmixing is not None:
            state |= {f"unmixing.{name}": tensor for name, tensor in self.unmixing.state().items()}
            state |= {f"components.{name}": tensor for name, tensor in self.components._asdict().items()}
        if self.confirming is not None:
            state |= {f"confirming.{name}": tensor for name, tensor in self.confirming.state().items()}
        return state

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

        self.iteration = int(tensors["copies"])
        self.start.load_state(part("start."))
        self.start.held.copy_(tensors["held"])
        if self.unmixing is not None:
            self.unmixing.load_state(part("unmixing."))
            device = self.start.z.device
            self.components = Group(**{name: tensor.to(device) for name, tensor in part("components.").items()})
        if confirming := part("confirming."):
            self._begin_confirming()
            assert self.confirming is not None
            self.confirming.load_state(confirming)


def nonnegative_fit(gram: Tensor, right: Tensor) -> Tensor:
    """argmin over q >= 0 of q^T gram q / 2 - right^T q, (k,), by accelerated projected descent."""
    size = gram.diagonal().clamp_min(torch.finfo(gram.dtype).tiny).sqrt()
    K, b = (gram / size[:, None] / size).double().cpu(), (right / size).double().cpu()
    rate = 1 / torch.linalg.eigvalsh(K)[-1].clamp_min(1e-12) if len(K) else torch.ones(())
    q, ahead, momentum = torch.zeros_like(b), torch.zeros_like(b), 1.0
    for _ in range(_FIT_STEPS):
        stepped = (ahead - rate * (K @ ahead - b)).clamp_min(0.0)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = stepped + (momentum - 1) / following * (stepped - q)
        q, momentum = stepped, following
    return q.to(right) / size


def _cost(settings: CopiesSettings, size: NetworkSize) -> Cost:
    """A start of `fast`, and two products with all differences of the basis, two for each input, in either stage."""
    start, step, kept = fast_cost(settings, size)
    if settings.prior is not Prior.NATURAL or not size.dense:
        return Cost(start, step, kept)
    product = 8.0 * size.rank * size.inputs
    refining = settings.m * product * (1 - settings.search_share)
    share = settings.unmix_share
    directions = min(settings.unmix_starts or size.rank, size.rank)
    edges = 8.0 * size.inputs * (directions + settings.m + size.rank)
    return Cost(start, share * directions * product + (1 - share) * (step + refining), kept + 4.0 * edges)


def _check(target: Target, settings: CopiesSettings) -> None:
    if not target.architecture.dense_first:
        raise InputError(f"recipe copies needs a dense network, got {target.architecture}; use recipe fast")
    make_engine(target, settings)


def _network_defaults(architecture: Architecture) -> dict[str, int]:
    return {} if architecture.dense else {"iterations": MODULE_ITERATIONS}


register(
    Attack(
        name="copies",
        version=3,
        description="images told apart by their edges in the row space, then fitted with the natural-image prior",
        settings=CopiesSettings,
        make=CopiesRecipe,
        defaults={"alpha_end": 200.0, "iterations": 2000},
        task_defaults={Task.MULTICLASS: {"pace": PACE_OF_CLASSES}},
        network_defaults=_network_defaults,
        measure_every=10,
        cost=_cost,
        check=_check,
    )
)
