"""Learning of all parameters, for likelihoods that run in the same process: by blocks, or on mini-batches."""

from invgp.core.training.blocks import PAPER_ORDER, TOGETHER, Blocks
from invgp.core.training.common import Progress, Report, evaluate
from invgp.core.training.mini_batches import MiniBatches

__all__ = ["PAPER_ORDER", "TOGETHER", "Blocks", "MiniBatches", "Progress", "Report", "evaluate"]
