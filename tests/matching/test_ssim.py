"""SSIM agrees with scikit-image and kornia, and has the properties a similarity must have."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

from recon_core.errors import InputError
from recon_core.matching.ssim import SsimKind, ssim, ssim_map

SHAPES = [(3, 32, 32), (1, 28, 28), (1, 25, 25), (3, 17, 40), (1, 11, 11)]


def noisy_pairs(shape: tuple[int, int, int], count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs from identical to unrelated, flat black and flat white patches among them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, *shape, generator=generator)
    noise = torch.rand(count, *shape, generator=generator)
    share = torch.linspace(0, 1, count).view(-1, 1, 1, 1)
    x[1, :, : shape[1] // 2] = 0.0
    x[2, :, : shape[1] // 2] = 1.0
    x[3] = 1.0
    return x, (1 - share) * x + share * noise


def scikit(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """The reference, in double precision."""
    return np.array(
        [
            structural_similarity(
                a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, channel_axis=0
            )
            for a, b in zip(x.double().numpy(), y.double().numpy(), strict=True)
        ]
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_wang_equals_scikit_image(shape: tuple[int, int, int]) -> None:
    x, y = noisy_pairs(shape)
    np.testing.assert_allclose(ssim(x, y).numpy(), scikit(x, y), atol=1e-5)


def test_wang_keeps_its_digits_on_bright_flat_images() -> None:
    generator = torch.Generator().manual_seed(1)
    x = 0.97 + 0.005 * torch.rand(8, 3, 32, 32, generator=generator)
    y = 0.97 + 0.005 * torch.rand(8, 3, 32, 32, generator=generator)
    np.testing.assert_allclose(ssim(x, y).numpy(), scikit(x, y), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_authors_equals_kornia(shape: tuple[int, int, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kornia's imports use what torch deprecates
        from kornia.metrics import ssim as kornia_ssim

        x, y = noisy_pairs(shape)
        x[4], y[4] = 0.0, 0.0
        single = kornia_ssim(x, y, window_size=3)
        double = kornia_ssim(x.double(), y.double(), window_size=3)
    torch.testing.assert_close(ssim(x, y, SsimKind.AUTHORS), single.mean(dim=(1, 2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(ssim_map(x, y, SsimKind.AUTHORS).double(), double, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", list(SsimKind))
def test_one_on_equals_symmetric_and_smaller_elsewhere(kind: SsimKind) -> None:
    x, y = noisy_pairs((3, 32, 32))
    torch.testing.assert_close(ssim(x, x, kind), torch.ones(len(x)), atol=2e-5, rtol=0)
    torch.testing.assert_close(ssim(x, y, kind), ssim(y, x, kind))
    scores = ssim(x, y, kind)
    assert (scores[5:].diff() < 0).all()  # more and more noise
    assert ssim(x, 1 - x, kind)[5:].max() < 0


@pytest.mark.parametrize("kind", SsimKind)
def test_a_copy_never_scores_above_one(kind: SsimKind) -> None:
    shades = torch.rand(200, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    flat = shades.expand(200, 3, 32, 32).contiguous()
    assert ssim_map(flat, flat, kind).flatten(1).mean(dim=1).max() > 1  # unless it is held there
    scores = ssim(flat, flat, kind)
    assert scores.max() == 1
    assert scores.min() > 1 - 2e-5


def test_what_is_no_number_stays_none() -> None:
    x = torch.full((2, 1, 16, 16), 0.5)
    x[1, 0, 8, 8] = torch.nan
    assert ssim(x, x).isnan().tolist() == [False, True]


def test_map_is_where_the_score_comes_from() -> None:
    x, y = noisy_pairs((3, 32, 32), 4)
    where = ssim_map(x, y)
    assert where.shape == (4, 3, 22, 22)
    torch.testing.assert_close(where.mean(dim=(1, 2, 3)), ssim(x, y))
    y = x.clone()
    y[:, :, :8, :8] = 0.5
    assert ssim_map(x, y)[:, :, 13:, 13:].min() > 1 - 1e-5  # whole windows away from the change


def test_chunks_do_not_show() -> None:
    x, y = noisy_pairs((1, 12, 12), 5000)
    torch.testing.assert_close(ssim(x, y)[4000:], ssim(x[4000:], y[4000:]))


def test_double_precision_stays_double() -> None:
    x, y = (batch.double() for batch in noisy_pairs((1, 28, 28)))
    np.testing.assert_allclose(ssim(x, y).numpy(), scikit(x, y), atol=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (torch.rand(2, 1, 10, 28), torch.rand(2, 1, 10, 28), "at least 11x11 pixels, got 10x28; use SSIM authors"),
        (torch.rand(2, 1, 28, 28), torch.rand(3, 1, 28, 28), r"one shape, got \(2, 1, 28, 28\) and \(3, 1, 28, 28\)"),
        (torch.rand(1, 28, 28), torch.rand(1, 28, 28), r"batch \(P, C, H, W\)"),
        (
            torch.zeros(1, 1, 28, 28, dtype=torch.uint8),
            torch.zeros(1, 1, 28, 28, dtype=torch.uint8),
            "divide 8-bit images by 255",
        ),
    ],
)
def test_bad_pairs_get_a_sentence(x: torch.Tensor, y: torch.Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ssim(x, y)


def test_the_callers_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ssim(*noisy_pairs((1, 28, 28)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
