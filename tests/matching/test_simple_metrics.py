"""MSE, PSNR, NCC and the stretch, on pairs whose values can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

from recon_core.errors import InputError
from recon_core.matching.mse import mse
from recon_core.matching.ncc import ncc
from recon_core.matching.psnr import psnr
from recon_core.matching.scaling import stretch

X = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_mse_of_a_constant_difference_is_its_square() -> None:
    torch.testing.assert_close(mse(X, X + 0.5), torch.full((6,), 0.25))
    assert (mse(X, X) == 0).all()


def test_psnr_known_values() -> None:
    torch.testing.assert_close(psnr(X, X + 0.1), torch.full((6,), 20.0))
    assert (psnr(X, X) == math.inf).all()
    expected = [peak_signal_noise_ratio(x.numpy(), y.numpy(), data_range=1) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(psnr(X, Y).numpy(), expected, rtol=1e-5)


def test_ncc_is_correlation() -> None:
    expected = [np.corrcoef(x.flatten().numpy(), y.flatten().numpy())[0, 1] for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(ncc(X, Y).numpy(), expected, atol=1e-6)


def test_ncc_sees_neither_contrast_nor_brightness() -> None:
    torch.testing.assert_close(ncc(X, 3 * X + 7), torch.ones(6))
    torch.testing.assert_close(ncc(X, 1 - X), -torch.ones(6))
    assert ncc(X, torch.ones_like(X)).isnan().all()


def test_stretch_fills_the_range_and_nothing_else() -> None:
    out = stretch(5 * X - 2)
    assert (out.flatten(1).amin(1) == 0).all()
    assert (out.flatten(1).amax(1) == 1).all()
    torch.testing.assert_close(ncc(out, X), torch.ones(6))
    torch.testing.assert_close(stretch(out), out)
    assert (stretch(torch.full((2, 1, 4, 4), 0.7)) == 0).all()


@pytest.mark.parametrize("metric", [mse, psnr, ncc])
def test_unequal_shapes_get_a_sentence(metric) -> None:
    with pytest.raises(InputError, match=r"one shape, got \(6, 3, 8, 8\) and \(5, 3, 8, 8\)"):
        metric(X, Y[:5])
