"""Runs of earlier inversions in the ledger: those that are far outside the prior are not used."""

from pathlib import Path

import numpy as np
import xarray as xr

import invgp
from helpers.averaged_fields import NODES, field_problem
from invgp.adapters import RunContext
from invgp.execution.evaluate import evaluate
from invgp.ledger import Ledger


def record(problem: invgp.Problem, values: np.ndarray, ledger: Path) -> None:
    """Record runs at simulator inputs (B, I), as an inversion with another prior or noise would."""
    with Ledger(ledger) as opened:
        context = RunContext([f"run{i}" for i in range(len(values))], ledger.parent)
        evaluate(problem.forward, values, context, recorder=opened.open_recorder(problem.forward))


def test_that_fields_far_outside_the_prior_do_not_spoil_an_inversion(tmp_path, rng):
    problem = field_problem(posterior="coupled gaussian")
    near = rng.standard_normal((12, NODES))
    posteriors = []
    for far in (0, 8):
        ledger = tmp_path / f"{far}.sqlite"
        record(problem, np.concatenate([near, 1e77 * rng.standard_normal((far, NODES))]), ledger)
        posteriors.append(invgp.invert(problem, ledger=ledger))
    xr.testing.assert_equal(posteriors[0]["field"], posteriors[1]["field"])


def test_that_runs_of_sites_far_outside_the_prior_do_not_spoil_an_inversion(tmp_path, rng):
    x = np.linspace(0.0, 1.0, 6)
    problem = invgp.define(
        {"x": x, "y": np.exp(0.3 * x)},
        coordinates={"x": "km"},
        observations={"y": {"unit": "s"}},
        latents={"a": {"unit": "1", "mean": 0.1, "std": 1.0, "kernel": {"length_scale": 0.3}}},
        noise={"std": {"y": 0.05}},
        forward=lambda a: np.exp(0.3 * np.clip(a, -1e3, 1e3)),
        inference={"posterior": "coupled gaussian"},
    )
    near = rng.standard_normal((24, 1))
    posteriors = []
    for far in (0, 12):
        ledger = tmp_path / f"{far}.sqlite"
        # The runs go to the sites in turn: the number of far ones is a multiple of that of the sites.
        record(problem, np.concatenate([near, 1e77 * rng.standard_normal((far, 1))]), ledger)
        posteriors.append(invgp.invert(problem, ledger=ledger))
    xr.testing.assert_equal(posteriors[0]["a"], posteriors[1]["a"])
