"""How large the user's own images may be; an upload must not be able to fill the memory."""

from __future__ import annotations

MAX_PIXELS = 512 * 512
"""Of one image: about what a dense first layer can still be trained on."""

MAX_SET_BYTES = 2**29
"""Of all images of a set, unpacked."""
