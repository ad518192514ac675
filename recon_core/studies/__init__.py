"""Studies: a named grid of trainings, each attacked and matched, with its figures, findings and report.

plan (what to vary) -> cells (one model each) -> runs in the store (shared by configuration) -> numbers -> figures
"""
