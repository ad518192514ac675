"""Several runs as one pool."""

from __future__ import annotations

import pytest
import torch

from recon_core.errors import InputError
from recon_core.matching.pool import Origin, pool


def test_pool_knows_who_made_what() -> None:
    runs = {"a": torch.rand(3, 1, 4, 4), "none": torch.rand(0, 1, 4, 4), "b": torch.rand(2, 1, 4, 4)}
    pooled = pool(runs)
    assert pooled.candidates.shape == (5, 1, 4, 4)
    assert [pooled.origin(i) for i in (0, 2, 3, 4)] == [Origin("a", 0), Origin("a", 2), Origin("b", 0), Origin("b", 1)]
    for i in range(5):
        origin = pooled.origin(i)
        assert torch.equal(pooled.candidates[i], runs[origin.run][origin.candidate])


def test_bad_pools_get_a_sentence() -> None:
    with pytest.raises(InputError, match=r"run b has candidates of shape \(1, 4, 4\) and run a of \(3, 4, 4\)"):
        pool({"a": torch.rand(2, 3, 4, 4), "b": torch.rand(2, 1, 4, 4)})
    with pytest.raises(InputError, match=r"0 candidates in 1 run\(s\)"):
        pool({"a": torch.rand(0, 1, 4, 4)})
    with pytest.raises(InputError, match="0 candidates in 0"):
        pool({})
    with pytest.raises(InputError, match="has 2 candidates, got index 2"):
        pool({"a": torch.rand(2, 1, 4, 4)}).origin(2)
