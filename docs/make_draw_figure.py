"""Write docs/figures/map_draws.png: draws from the prior on a map by each of the three methods."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from invgp.core.geometry import inducing_factor
from invgp.core.kernels import Matern32
from invgp.maps.grids import MapGrid
from invgp.maps.prior_draws import DenseDraw, Embedding, GridDraw, WaveDraw
from invgp.maps.process_prior import SharedKernel

POINTS, DRAWS, LENGTH_SCALE = 60, 3, 0.3

axis = np.linspace(0.0, 1.0, POINTS)
grid = MapGrid(("x", "y"), (axis, axis), None, ("y", "x"))
X = grid.at((slice(0, POINTS), slice(0, POINTS)))
kernel = Matern32(1.0, np.full(2, LENGTH_SCALE))
far = np.full((1, 2), 1e6)  # the inducing point, so far away that the draws are those of the prior
shared = SharedKernel(kernel, far, inducing_factor([kernel], far[None], 0.0)[0], 0.0)
embedding = Embedding.build(kernel, grid)
if embedding is None:
    raise SystemExit("the grid has no embedding")
rng = np.random.default_rng(0)
draws = {
    "exact": DenseDraw.sample(shared, X, DRAWS, rng),
    "circulant embedding": GridDraw.sample(shared, embedding, grid, DRAWS, rng),
    "sums of waves": WaveDraw.sample(shared, DRAWS, rng),
}
figure, panels = plt.subplots(len(draws), DRAWS, figsize=(6.6, 6.8), layout="constrained")
for row, (name, draw) in zip(panels, draws.items(), strict=True):
    for ax, values in zip(row, draw.at(X, np.arange(len(X))), strict=True):
        ax.imshow(values.reshape(POINTS, POINTS), origin="lower", cmap="viridis", vmin=-2.5, vmax=2.5)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.savefig(Path(__file__).parent / "figures" / "map_draws.png", dpi=130)
