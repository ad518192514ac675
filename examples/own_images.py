"""Which of my own images would a network give away? A folder with a subfolder for each of two classes.

    python examples/own_images.py my_images --n 40

Leaves the best pairs as a page (pairs.html) and one row for each training image (images.csv) in the current folder.
"""

from __future__ import annotations

import argparse

import recon_core as rc


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("folder", help="with a subfolder of images for each class, all of one size")
    asked.add_argument("--n", type=int, default=50, help="training images in all")
    asked.add_argument("--width", type=int, default=1000, help="of both hidden layers")
    asked.add_argument("--iterations", type=int, default=None, help="of the attack; its own choice if left out")
    given = asked.parse_args()

    data = rc.load_data(given.folder, n=given.n)
    print(data)
    model = rc.train(data, widths=(given.width, given.width))
    print(model)
    attack = {} if given.iterations is None else {"iterations": given.iterations}
    found = rc.reconstruct(model, m=2 * given.n, **attack)  # weights only
    untrained = rc.reconstruct(model, m=2 * given.n, baseline="untrained", **attack)  # what chance would give
    score = rc.match(found, data, untrained=untrained)
    print(score)

    score.plot().write_html("pairs.html")
    score.table().to_csv("images.csv", index=False)


if __name__ == "__main__":
    main()
