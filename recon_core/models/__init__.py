"""Networks of both papers, and the closed-form passes that make dense ones fast."""

from recon_core.models.dense import (
    DenseLayer,
    ForwardPass,
    backward_deltas,
    forward_pass,
    gated,
    gradient_gram,
    soften,
)
from recon_core.models.network import Architecture, Network, architecture_of, build_network

__all__ = [
    "Architecture",
    "DenseLayer",
    "ForwardPass",
    "Network",
    "architecture_of",
    "backward_deltas",
    "build_network",
    "forward_pass",
    "gated",
    "gradient_gram",
    "soften",
]
