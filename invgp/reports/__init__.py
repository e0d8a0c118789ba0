"""The report: one HTML page, without a network, that says what was inverted, what came of it and how far to trust it.

`write` takes the Dataset that `invgp run` writes. The page holds figures for print, and the numbers behind them for
whoever points at a site.
"""

from __future__ import annotations

from .page import render, write

__all__ = ["render", "write"]
