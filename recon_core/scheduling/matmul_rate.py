"""`python matmul_rate.py SIDE TRIES`: operations a second of float32 matrix products, the best of a few tries.

Run as a file, not as a module, so that nothing but numpy is loaded.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def best_rate(side: int, tries: int) -> float:
    """The best of several tries in CPU time of this thread, since other processes only make it look slower."""
    a = np.full((side, side), 0.5, dtype=np.float32)
    seconds = []
    for _ in range(tries):
        started = time.thread_time()
        np.matmul(a, a)
        seconds.append(time.thread_time() - started)
    return 2.0 * side**3 / min(seconds)


if __name__ == "__main__":
    sys.stdout.write(f"{best_rate(int(sys.argv[1]), int(sys.argv[2])):.6g}\n")
