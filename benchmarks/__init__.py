"""What the speed claims rest on: `python -m benchmarks NAME --json`. Both sides of a ratio are measured in one run."""
