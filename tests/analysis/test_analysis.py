"""Numbers behind the figures, on inputs whose answer is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from recon_core.analysis.counts import count_by_factor, count_by_threshold, roc_curve, sorted_ssim
from recon_core.analysis.frames import write_frame
from recon_core.analysis.leakage import leak_scatter
from recon_core.analysis.margins import margin_distances, network_margin, own_outputs, sample_margins
from recon_core.analysis.models import ModelTable, model_row
from recon_core.analysis.multipliers import multiplier_histogram
from recon_core.analysis.pairs import best_pairs
from recon_core.analysis.table import match_table
from recon_core.analysis.weights import singular_values, weight_images
from recon_core.errors import InputError
from recon_core.matching.roc import roc

NAN = math.nan


def test_binary_margin_is_the_smallest_output_in_size() -> None:
    outputs, labels = torch.tensor([[-3.0], [2.0], [-2.5]]), torch.tensor([0, 1, 0])
    assert own_outputs(outputs, labels).tolist() == [-3.0, 2.0, -2.5]
    assert margin_distances(outputs, labels).tolist() == [1.0, 0.0, 0.5]


def test_multiclass_margin_is_the_lead_over_the_best_rival() -> None:
    outputs = torch.tensor([[5.0, 1.0, 3.0], [0.0, 4.0, 6.0]])
    labels = torch.tensor([0, 1])
    assert own_outputs(outputs, labels).tolist() == [5.0, 4.0]
    assert sample_margins(outputs, labels).tolist() == [2.0, -2.0]
    assert margin_distances(outputs, labels).tolist() == [0.0, -4.0]


def test_two_classes_have_one_distance_however_many_outputs_tell_them_apart() -> None:
    """One output phi, or two outputs 0 and phi: the same margins, and a misclassified sample is on the wrong side."""
    phi, labels = torch.tensor([[3.0], [-2.0], [1.5], [0.5], [-4.0]]), torch.tensor([1, 0, 1, 0, 1])
    both = torch.cat([torch.zeros_like(phi), phi], dim=1)
    assert torch.equal(margin_distances(phi, labels), margin_distances(both, labels))
    assert margin_distances(phi, labels).tolist() == [1.5, 0.5, 0.0, -2.0, -5.5]
    assert network_margin(sample_margins(phi, labels)) == 1.5
    wrong = torch.tensor([False, False, False, True, True])
    assert torch.equal(margin_distances(phi, labels) <= -1.5, wrong)
    assert margin_distances(-phi[:3], labels[:3]).tolist() == [-3.0, -2.0, -1.5]  # none is right: no margin to shift by


def test_scatter_keeps_rows_together_and_ranks() -> None:
    outputs = torch.tensor([[1.0], [-2.0], [3.0], [-4.0]])
    scatter = leak_scatter(
        torch.tensor([0.9, 0.7, 0.5, NAN]),
        outputs,
        torch.tensor([1, 0, 1, 0]),
        torch.tensor([True, False, False, False]),
    )
    assert scatter.rank_correlation == pytest.approx(-1.0)
    frame = scatter.to_frame()
    assert frame["margin_distance"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert frame["on_margin"].tolist() == [True, False, False, False]


def test_rank_correlation_of_equals_is_no_number() -> None:
    outputs = torch.ones(3, 1)
    scatter = leak_scatter(torch.tensor([0.1, 0.2, 0.3]), outputs, torch.ones(3).long(), torch.ones(3) > 0)
    assert math.isnan(scatter.rank_correlation)


def test_counts_by_threshold_never_grow_and_skip_nan() -> None:
    ssim = torch.tensor([0.2, 0.4, 0.9, NAN])
    counts = count_by_threshold(ssim, torch.zeros(4), non_members=torch.tensor([0.3, 0.1]), thresholds=[0.0, 0.4, 0.95])
    assert counts.good.tolist() == [3, 1, 0]
    assert counts.mean_image.tolist() == [0, 0, 0]
    assert counts.untrained is None
    assert counts.to_frame().columns.tolist() == ["threshold", "good", "mean_image", "non_members"]
    assert counts.non_members is not None
    assert counts.non_members.tolist() == [2, 0, 0]
    everywhere = count_by_threshold(torch.rand(50), torch.rand(50)).good
    assert (np.diff(everywhere) <= 0).all()


def test_counts_by_factor() -> None:
    scores = torch.tensor([[0.5, 0.1], [0.6, 0.7]])
    counts = count_by_factor(torch.tensor([1.0, 1.5]), scores, 0.4)
    assert counts.good.tolist() == [1, 2]
    assert counts.to_frame()["merge_factor"].tolist() == [1.0, 1.5]


def test_sorted_puts_the_best_first_and_nan_last() -> None:
    ranked = sorted_ssim(torch.tensor([0.1, NAN, 0.8]))
    assert ranked.samples.tolist() == [2, 0, 1]
    assert ranked.to_frame()["rank"].tolist() == [1, 2, 3]


def test_roc_of_separated_scores_is_perfect() -> None:
    curve = roc_curve(roc(torch.tensor([0.8, 0.9]), torch.tensor([0.1, 0.2])))
    assert curve.auc == 1.0
    assert curve.tpr_at_1_percent_fpr == 1.0
    assert len(curve.to_frame()) == 5


def test_histogram_counts_every_finite_multiplier_once() -> None:
    histogram = multiplier_histogram(torch.tensor([0.0, 0.1, 0.9, 1.0, NAN]), bins=2)
    assert histogram.counts.tolist() == [2, 2]
    assert histogram.edges.tolist() == [0.0, 0.5, 1.0]
    assert histogram.non_finite == 1


def test_effective_rank_of_equal_values_is_their_number() -> None:
    spectrum = singular_values(torch.tensor([0.0, 2.0, 2.0, 2.0]))
    assert spectrum.values.tolist() == [2.0, 2.0, 2.0, 0.0]
    assert spectrum.effective_rank == pytest.approx(3.0)


def test_weight_images_are_the_largest_neurons_about_grey() -> None:
    weight = torch.zeros(3, 4)
    weight[1] = torch.tensor([1.0, -1.0, 0.0, 0.5])
    weight[2] = 0.1
    shown = weight_images(weight, (1, 2, 2), most=2)
    assert shown.neurons.tolist() == [1, 2]
    assert shown.images[0].ravel().tolist() == [1.0, 0.0, 0.5, 0.75]
    kernels = weight_images(torch.randn(5, 3, 4, 4), (3, 32, 32))
    assert kernels.images.shape == (5, 3, 4, 4)
    assert weight_images(torch.zeros(1, 4), (1, 2, 2)).images.ravel().tolist() == [0.5] * 4


def test_best_pairs_are_in_order() -> None:
    images = torch.rand(3, 1, 4, 4)
    pairs = best_pairs(images, 1 - images, torch.tensor([0.3, 0.9, 0.5]), 2, 0.6)
    assert pairs.samples.tolist() == [1, 2]
    assert pairs.good.tolist() == [True, False]
    assert np.array_equal(pairs.images[0], images[1].numpy())


def test_table_names_the_run_of_each_candidate() -> None:
    images = torch.rand(3, 1, 4, 4)
    table = match_table(
        images,
        images.clone(),
        torch.tensor([1.0, 0.2, NAN]),
        torch.zeros(3),
        torch.tensor([1, 2, 0]),
        torch.zeros(3).bool(),
        torch.tensor([4, 5, -1]),
        ids=[7, 8, 9],
        labels=torch.tensor([0, 1, 1]),
        class_names=["odd", "even"],
        runs=["a", "b"],
        run_starts=[0, 5],
        outputs=torch.tensor([[-1.0], [1.5], [2.0]]),
        threshold=0.5,
    ).to_frame()
    assert table["run"].tolist() == ["a", "b", ""]
    assert table["class"].tolist() == ["odd", "even", "even"]
    assert table["good"].tolist() == [True, False, False]
    assert table["psnr"].tolist()[:2] == [math.inf, math.inf]
    assert table["mse"].isna().tolist() == [False, False, True]


def test_model_table_has_accuracy_and_loss() -> None:
    shape = {"input_shape": [3, 32, 32], "widths": [1000, 1000], "outputs": 1, "conv_kernel": None}
    result = {"n": 500, "log_loss": math.log(1e-6), "train_error": 0.0, "test_error": 0.12, "architecture": shape}
    frame = ModelTable((model_row("m", result, 42), model_row("far", {**result, "log_loss": -1e4}))).to_frame()
    assert frame["log10_train_loss"].tolist() == pytest.approx([-6.0, -1e4 / math.log(10)])
    assert frame["test_accuracy"][0] == pytest.approx(0.88)
    assert frame["architecture"][0] == "3072-1000-1000-1"
    assert pd.isna(frame["test_loss"][0])


def test_frames_read_back_as_they_were(tmp_path: Path) -> None:
    result = sorted_ssim(torch.rand(20, generator=torch.Generator().manual_seed(0)))
    csv, parquet = write_frame(result, tmp_path / "a.b")
    assert (csv.name, parquet.name) == ("a.b.csv", "a.b.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(csv), result.to_frame(), check_exact=False, rtol=1e-15)
    pd.testing.assert_frame_equal(pd.read_parquet(parquet), result.to_frame())


BAD = {
    "outputs without labels": (lambda: margin_distances(torch.zeros(2, 1), torch.zeros(3)), "(2, 1)"),
    "scores of another model": (
        lambda: leak_scatter(torch.zeros(2), torch.zeros(3, 1), torch.zeros(3), torch.zeros(3)),
        "2 scores and 3",
    ),
    "threshold": (lambda: count_by_threshold(torch.zeros(2), torch.zeros(2), thresholds=[1.2]), "1.2"),
    "factors": (lambda: count_by_factor(torch.ones(2), torch.zeros(3, 4), 0.4), "(3, 4)"),
    "no multipliers": (lambda: multiplier_histogram(torch.tensor([NAN])), "none of the 1"),
    "bins": (lambda: multiplier_histogram(torch.ones(2), bins=0), "got 0"),
    "no values": (lambda: singular_values(torch.ones(2, 2)), "(2, 2)"),
    "no image": (lambda: weight_images(torch.ones(2, 5), (1, 2, 2)), "5 values"),
    "no pairs": (lambda: best_pairs(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), torch.ones(1), 0, 0.4), "got 0"),
    "unlike pairs": (
        lambda: best_pairs(torch.ones(1, 1, 2, 2), torch.ones(2, 1, 2, 2), torch.ones(1), 1, 0.4),
        "(2, 1, 2, 2)",
    ),
    "unfinished": (lambda: model_row("m", {"n": 5}), "log_loss"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_sentence(case: str) -> None:
    call, named = BAD[case]
    with pytest.raises(InputError) as caught:
        call()
    assert named in str(caught.value)
