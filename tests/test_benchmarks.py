"""What a benchmark says of its numbers; the numbers themselves are measured elsewhere."""

from __future__ import annotations

from benchmarks.reconstruct import chance_keys


def test_a_chance_level_stands_beside_the_controls_under_both_names() -> None:
    controls = {
        "cifar_good": {"mean_image": 1, "untrained": 3, "held_out": 2, "first_layer_weights": 9},
        "circle_within_0.1": {"untrained": 4},
        "times_sooner": None,
    }
    found = chance_keys(controls)
    assert found["floors"] == found["controls"] == controls
    assert found["chance_levels"] == {"cifar_good": 3, "circle_within_0.1": 4, "times_sooner": None}
