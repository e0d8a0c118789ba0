"""A curve that was seen with noise: what most models here are fitted to."""

import numpy as np

from invgp.core.training import Blocks

X = np.sort(np.random.default_rng(11).uniform(0, 6, (60, 1)), axis=0)
TRUTH = np.sin(1.5 * X[:, 0])
NEW = np.linspace(0.5, 5.5, 25)[:, None]
POSTERIOR_ONLY = Blocks(learn=("posterior",))
