"""The Otway case study: the same line through the Python function and through the C program."""

from dataclasses import replace

import numpy as np
import pandas as pd

import invgp


def short_run(otway, name):
    """Five sites of the line and four evaluations of the bound: the C program starts a process for every run."""
    line = pd.read_csv(otway / "data" / "synthetic.csv")
    line.iloc[[0, 20, 40, 60, 80]].to_csv(otway / "data" / "short.csv", index=False)
    problem = invgp.load(otway / name, data=otway / "data" / "short.csv")
    settings = replace(problem.inference, samples=40, max_evaluations=4, workers=1, seed=1)
    return invgp.invert(replace(problem, inference=settings))


def test_that_the_python_and_the_c_model_give_the_same_posterior(otway):
    python, c = short_run(otway, "otway.toml"), short_run(otway, "otway_c.toml")
    for name in python.data_vars:
        np.testing.assert_allclose(c[name], python[name], rtol=1e-9, err_msg=name)
    assert c.attrs["invgp_runs_failed"] == 0
    assert c.attrs["invgp_simulator_digest"] != python.attrs["invgp_simulator_digest"]
