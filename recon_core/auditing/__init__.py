"""An audit: what an attack drew out of a model, judged against the images the model is said to be trained on.

weights -> candidates (`recon_core.attacks`, which sees no data) -> data attached -> fit checked -> counts -> report
"""
