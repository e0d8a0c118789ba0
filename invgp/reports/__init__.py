"""Self-contained HTML reports of posteriors.

`write` takes a dataset of `invgp run`. The page contains tables, diagnostics, figures, and an interactive view of the
values at each site. It loads nothing from a network.
"""

from __future__ import annotations

from invgp.reports.answers import answer_section
from invgp.reports.page import render, write

__all__ = ["answer_section", "render", "write"]
