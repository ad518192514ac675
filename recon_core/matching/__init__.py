"""Which training images the candidates show: neighbours, merging, scores, and the floors a count stands on."""
