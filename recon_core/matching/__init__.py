"""Which training images the candidates show: neighbours, merging, scores, and the controls a count is compared with."""
