"""What one attack step costs: the closed form against autograd's double backward and against plain matrix products.

All sides take turns in one process on the same weights, threads and candidates, so that a busy machine slows
them alike; medians are reported. A step is one evaluation: the loss and its gradients in x and coefficients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.timing import interleaved
from recon_core.attacks import AutogradStationarity, DenseStationarity, Target, step_flops
from recon_core.config import Task
from recon_core.models import Architecture, build_network
from recon_core.models.modules import module_network

M = 100
WIDTHS = (1000, 1000)
INPUT_SHAPE = (3, 32, 32)
RANK = 50  # of the row space of a model trained on 50 images
ALPHA = 50.0
_SIDE = 1024  # of the square product that stands for the machine's matmul rate


def measure(repeats: int = 15, threads: int | None = None) -> dict[str, Any]:
    """Milliseconds per step of each side and the two ratios; `matmul_fraction` counts matrix products only.

    `closed_form_over_autograd` compares the closed form in the row space, where the attack runs, with autograd
    in float32 in the full space, where it has to; `closed_form_full_over_autograd` has both in the full space.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _measure(repeats)
    finally:
        torch.set_num_threads(before)


def _measure(repeats: int) -> dict[str, Any]:
    cpu = torch.device("cpu")
    d = INPUT_SHAPE[0] * INPUT_SHAPE[1] * INPUT_SHAPE[2]
    target = Target(build_network(Architecture(INPUT_SHAPE, WIDTHS, 1), init_scale="kaiming", seed=0), Task.BINARY)
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(d, RANK, generator=generator)).Q
    z = torch.randn(M, RANK, generator=generator)
    x = z @ basis.T
    c = torch.rand(M, generator=generator) / M
    labels = torch.zeros(M, dtype=torch.long)
    row_space = DenseStationarity(target, dtype=torch.float32, device=cpu, basis=basis)
    full = DenseStationarity(target, dtype=torch.float32, device=cpu)
    autograd = AutogradStationarity(target, dtype=torch.float32, device=cpu)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(d, WIDTHS[0]), nn.ReLU(), nn.Linear(*WIDTHS, bias=False), nn.ReLU(),
        nn.Linear(WIDTHS[1], 1, bias=False),
    )  # fmt: skip
    module.load_state_dict(dict(zip(module.state_dict(), target.network.state_dict().values(), strict=True)))
    anybody = Target(module_network(module, INPUT_SHAPE), Task.BINARY)
    modular = AutogradStationarity(anybody, dtype=torch.float32, device=cpu, basis=basis)
    authors = AutogradStationarity(target, dtype=torch.float64, device=cpu)
    x64, c64 = x.double(), c.double()
    square = torch.randn(_SIDE, _SIDE, generator=generator)
    thin, hidden = torch.randn(M, WIDTHS[0], generator=generator), target.explained()[1].weight

    def step(engine: DenseStationarity | AutogradStationarity, at: torch.Tensor, weights: torch.Tensor) -> None:
        engine.evaluate(at, weights, labels, ALPHA)

    with torch.no_grad():
        seconds = interleaved(
            {
                "row_space": lambda: step(row_space, z, c),
                "full": lambda: step(full, x, c),
                "module_row_space": lambda: step(modular, z, c),
                "autograd_float32": lambda: step(autograd, x, c),
                "autograd_float64": lambda: step(authors, x64, c64),
                "matmul": lambda: torch.mm(square, square),
                "thin_matmul": lambda: torch.mm(thin, hidden),
            },
            repeats,
        )
    milliseconds = {name: 1e3 * value for name, value in seconds.items()}
    rate = 2 * _SIDE**3 / milliseconds["matmul"] / 1e6
    thin_rate = 2 * M * WIDTHS[0] * WIDTHS[1] / milliseconds["thin_matmul"] / 1e6
    flops = step_flops((RANK, *WIDTHS, 1), M)
    reached = flops / milliseconds["row_space"] / 1e6
    reached_full = step_flops((d, *WIDTHS, 1), M) / milliseconds["full"] / 1e6
    return {
        "closed_form_over_autograd": milliseconds["row_space"] / milliseconds["autograd_float32"],
        "closed_form_full_over_autograd": milliseconds["full"] / milliseconds["autograd_float32"],
        "closed_form_over_authors": milliseconds["row_space"] / milliseconds["autograd_float64"],
        "module_over_closed_form": milliseconds["module_row_space"] / milliseconds["row_space"],
        "matmul_fraction": reached / rate,
        "matmul_fraction_full": reached_full / rate,
        "matmul_fraction_same_shape": reached / thin_rate,
        "step_flops": flops,
        "matmul_gflops": rate,
        "milliseconds": milliseconds,
        "threads": torch.get_num_threads(),
        "repeats": repeats,
    }
