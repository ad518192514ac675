"""Afterimage's engine: train a classifier to its margin, then ask its weights what they remember."""

__version__ = "0.1.0"
