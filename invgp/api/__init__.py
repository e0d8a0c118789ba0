"""Public functions on posteriors, one per command.

Each argument has the name of the option of its command. Packages that take long to import are imported when a function
is called, so that the command line can use the signatures without waiting.
"""

from __future__ import annotations

from invgp.api.answers import crossvalidate, difference, revise, weigh
from invgp.api.measurements import design, influence
from invgp.api.posterior_files import find_posterior, ledger_path, open_posterior, refuse_calibration, write
from invgp.api.presentation import export, plot, report
from invgp.api.prior_data import prior
from invgp.api.validation import calibrate, compare, interrupted_path

__all__ = [
    "calibrate",
    "compare",
    "crossvalidate",
    "design",
    "difference",
    "export",
    "find_posterior",
    "influence",
    "interrupted_path",
    "ledger_path",
    "open_posterior",
    "plot",
    "prior",
    "refuse_calibration",
    "report",
    "revise",
    "weigh",
    "write",
]
