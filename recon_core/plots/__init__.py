"""From numbers to figures: every function takes a result of `analysis` and draws it."""
