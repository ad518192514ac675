"""Afterimage's engine: train a classifier to its margin, then ask its weights what they remember."""

from recon_core.version import __version__

__all__ = ["__version__"]
