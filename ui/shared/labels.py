"""What settings are called in forms, with their units; by the config class that has them.

A setting that is not listed here, such as one of somebody's own attack, goes by its field's title or its name.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from ui.shared.formatting import plain, sentence

_LABELS: dict[str, dict[str, str]] = {
    "TrainConfig": {"device": "Device"},
    "DataConfig": {
        "source": "Data set",
        "path": "Folder or .npz file",
        "task": "Task",
        "n": "Training samples",
        "per_class": "Training samples per class",
        "partition": "Binary partition",
        "classes": "Classes",
        "selection": "Selection of samples",
        "seed": "Data seed",
        "labels": "Labels of the points",
        "radius_noise": "Radius noise (std. dev.)",
        "test_n": "Test samples (at most)",
    },
    "ModelConfig": {
        "widths": "Hidden layer widths (neurons)",
        "conv_kernel": "Convolution kernel (pixels)",
        "conv_channels": "Convolution channels",
        "bias": "Biases",
        "init_scale": "Initialisation scale (std. dev.)",
        "dense_init_scale": "Initialisation scale behind the convolution",
        "seed": "Initialisation seed",
        "dtype": "Precision",
    },
    "TrainingConfig": {
        "recipe": "Training algorithm",
        "loss": "Loss",
        "weight_decay": "Weight decay λ",
        "huber_delta": "Huber δ",
        "learning_rate": "Learning rate",
        "batch_size": "Batch size (samples)",
        "label_smoothing": "Label smoothing",
        "dropout": "Dropout",
        "augmentation": "Augmentation",
        "epsilon": "Privacy budget ε",
        "delta": "Privacy δ",
        "clip_norm": "Gradient clipping (norm)",
        "epochs": "Epochs (at most)",
        "target_loss": "Target loss",
        "target_log_loss": "Target loss (natural logarithm)",
        "target_residual": "Target residual",
        "max_seconds": "Time limit (seconds)",
        "max_change": "Relative step (at most)",
        "measure_every": "Measure every (steps)",
        "record_every": "Record the output every (steps)",
    },
    "ReleaseConfig": {
        "pruned": "Weights set to zero (share)",
        "noise": "Noise on the weights (relative std. dev.)",
        "bits": "Rounding of the weights (bits)",
    },
    "AttackSettings": {
        "objective": "Objective",
        "m": "Candidates",
        "labels": "Labels of the candidates",
        "iterations": "Iterations per seed",
        "max_seconds": "Time limit (seconds)",
        "seed": "First seed",
        "seeds": "Seeds (restarts)",
        "dtype": "Precision",
        "device": "Device",
        "measure_every": "Measure every (iterations)",
        "snapshots": "Snapshots kept (at most)",
        "alpha": "ReLU gate sharpness α",
        "alpha_end": "α at the last iteration",
        "lr_x": "Step size of the candidates",
        "x_init_scale": "Initial scale (std. dev.)",
        "lam_min": "Lower bound of the multipliers",
        "lam_scale": "Unit of the multipliers",
        "layer_weights": "Weights of the layers",
        "block_size": "Block size (candidates)",
        "engine": "Gradient of the loss",
        "lr_lam": "Step size of the multipliers",
        "momentum": "Momentum",
        "weight_stationarity": "Weight of the stationarity loss α₁",
        "weight_floor": "Weight of the lower bound α₂",
        "weight_prior": "Weight of the pixel prior α₃",
        "floor": "Penalty below the lower bound",
        "prior": "Prior",
        "box_low": "Smallest centred pixel value",
        "box_high": "Largest centred pixel value",
        "pace": "Relative step of the candidates",
        "pace_lam": "Relative step of the multipliers",
        "search_share": "Share of iterations in stage 1",
        "lr_refine": "Adam step size in stage 2",
        "ridge": "Relative ridge of the covariance",
        "weight_upper": "Weight of the layers above the first",
        "input_norm": "Expected norm of a centred input",
        "rank": "Rank of the first layer",
        "unmix_share": "Share of iterations for unmixing",
        "confirm_share": "Share of iterations for confirming",
        "unmix_starts": "Directions of each round of unmixing",
        "rounds": "Rounds of unmixing",
        "rho": "Strength of the prior",
    },
    "SearchSettings": {
        "trials": "Trials",
        "sampler": "Sampler",
        "ranges": "Hyper-parameter ranges",
        "seed": "Seed of the sampler",
    },
    "Places": {
        "workers": "Parallel runs",
        "cluster": "Ray cluster",
        "cpus": "CPU cores per run",
        "gpus": "GPUs per run",
    },
}

_PRIORS = {
    "natural": "natural (images have sparse edges)",
    "box": "box (pixels stay in their range)",
    "off": "none",
}


def prior_label(name: str) -> str:
    """What an attack assumed of images, for a place that reads markdown."""
    return _PRIORS.get(name, plain(name))


# What a group of settings in a run's config is called, and the class that holds it.
_SECTIONS = {
    "data": ("Data", "DataConfig"),
    "model": ("Model", "ModelConfig"),
    "training": ("Training", "TrainingConfig"),
    "release": ("Release", "ReleaseConfig"),
    "settings": ("Attack", "AttackSettings"),
    "run": ("Run", "TrainConfig"),
}


def section_labels(section: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """What a group of a run's config and the settings in it are called."""
    title, kind = _SECTIONS.get(section, (_spelt(section), ""))
    return title, {name: _LABELS.get(kind, {}).get(name) or _spelt(name) for name in names}


def label_of(owner: type[BaseModel], name: str) -> str:
    """What a field of `owner` is called in a form."""
    own = owner.model_fields[name].title
    known = (_LABELS.get(kind.__name__, {}).get(name) for kind in owner.__mro__)
    return own or next(filter(None, known), _spelt(name))


def _spelt(name: str) -> str:
    spelt = name.replace("_", " ")
    return spelt[:1].upper() + spelt[1:]


def help_of(owner: type[BaseModel], name: str, path: str) -> str:
    """A sentence on a field, and what it is called in files and on the command line."""
    about = owner.model_fields[name].description
    return f"{sentence(about)} Setting: `{path}`." if about else f"Setting: `{path}`."
