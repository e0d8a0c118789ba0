"""Failed runs and missing outputs: at random they change nothing in expectation; otherwise a warning is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import invgp
from helpers.exact_posterior import joint_posterior
from helpers.problems import linear_problem, map_problem
from invgp.adapters import Evaluations, ForwardModel, Status
from invgp.errors import RunsFailedError
from invgp.execution.run_outcomes import RunOutcomes

SALTS = 6
LATENTS = ("resistivity", "thickness")


@dataclass(frozen=True)
class Lossy:
    """A simulator of which some runs, or some outputs of runs, are lost: by chance, or where a latent is large."""

    model: ForwardModel
    share: float
    salt: int
    loses: str

    name, rows_per_task = "lossy", 4096

    @property
    def inputs(self):
        return self.model.inputs

    @property
    def outputs(self):
        return self.model.outputs

    @property
    def digest(self):
        return self.model.digest

    def evaluate(self, values, context):
        outputs = self.model.evaluate(values, context).outputs.copy()
        # Digits that have nothing to do with the physics, and are the same for the same inputs.
        weights = np.array([1.1, 1.7, 2.3, 0.1])[: values.shape[1]]
        digits = np.modf(np.abs(np.sin(1e5 * values @ weights + self.salt)) * 1e4)[0]
        if self.loses == "runs where it is thick":
            lost = np.repeat(values[:, 2:3] > 1.25 * np.median(values[:, 2]), 3, axis=1)
        elif self.loses == "the second output":
            lost = (digits < self.share)[:, None] & (np.arange(outputs.shape[1]) == 1)
        else:
            count = 1 if self.loses == "runs" else outputs.shape[1]
            lost = np.stack([np.modf(digits * 97.0**k)[0] < self.share for k in range(1, count + 1)], axis=1)
            lost = np.broadcast_to(lost, outputs.shape)
        outputs[lost] = np.nan
        gone, whole = lost.all(axis=1), ~lost.any(axis=1)
        status = [Status.NAN if g else Status.OK if w else Status.PARTIAL for g, w in zip(gone, whole, strict=True)]
        messages = ["" if s is Status.OK else f"run {n}: lost" for s, n in zip(status, context.labels, strict=True)]
        return Evaluations(outputs, tuple(status), tuple(messages))


def lossy(problem, share, salt=0, loses="outputs"):
    return replace(problem, forward=Lossy(problem.forward, share, salt, loses))


def notes(posterior):
    return posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
@pytest.mark.parametrize("loses", ["runs", "outputs"])
@pytest.mark.parametrize("emulator", [False, True])
def test_that_random_failures_do_not_change_the_posterior_on_average(loses: str, emulator: bool) -> None:
    problem = map_problem(emulator=emulator, max_failed_share=0.3)
    whole = invgp.invert(problem)
    found = [invgp.invert(lossy(problem, 0.15, salt, loses)) for salt in range(SALTS)]
    assert loses == "outputs" or all(posterior.attrs["invgp_runs_failed"] > 0 for posterior in found)
    allowed = 0.05 if emulator else 0.02  # an emulator has few runs, of which each counts
    for name in LATENTS:
        shifts = np.stack([((p[name] - whole[name]) / whole[f"{name}_std"]).values.ravel() for p in found])
        spreads = np.stack([np.log(p[f"{name}_std"] / whole[f"{name}_std"]).values.ravel() for p in found])
        for change in (shifts, spreads):
            assert np.abs(change.mean()) < allowed
            assert np.sqrt(np.mean(change.mean(axis=0) ** 2)) < 2 * allowed
    assert not any("Failures are not random" in notes(posterior) for posterior in found)
    assert all(("gave only some of their outputs" in notes(p)) == (loses == "outputs") for p in found)


@pytest.mark.parametrize("share", [0.5, 0.8])
@pytest.mark.parametrize("settings", [{}, {"emulator": False}, {"emulator": False, "estimator": "score"}])
def test_that_an_output_missing_in_most_runs_does_not_change_the_posterior(settings, share: float) -> None:
    problem = linear_problem(**settings)
    posterior = invgp.invert(lossy(problem, share, loses="the second output"))
    assert posterior.attrs["invgp_status"] == "the posterior has converged"
    assert settings or posterior.attrs["invgp_runs"] <= 6 * problem.survey.size  # the emulator makes do with few
    mean, covariance = joint_posterior(problem, problem.survey.X)
    spread = np.sqrt(np.diag(covariance))
    for k, name in enumerate(("velocity", "depth")):
        here = slice(15 * k, 15 * k + 15)
        np.testing.assert_array_less(np.abs(posterior[name].values - mean[here]) / spread[here], 1e-3)
        np.testing.assert_allclose(posterior[f"{name}_std"], spread[here], rtol=1e-3)


def test_that_an_output_that_no_run_of_a_site_has_is_named() -> None:
    problem = linear_problem(emulator=False)
    with pytest.raises(
        RunsFailedError,
        match=r"no posterior could be found: .*, and \d+ gave only some of their outputs\n.*no run gave second "
        r"of site 1, second of site 2, second of site 3 and 12 more: leave the datum empty",
    ):
        invgp.invert(lossy(problem, 1.0, loses="the second output"))


@pytest.mark.parametrize("kind", ["coupled gaussian", "full gaussian"])
def test_that_failures_in_the_region_of_the_posterior_are_reported(kind: str) -> None:
    problem = map_problem(max_failed_share=0.6, posterior=kind, emulator=False)
    posterior = invgp.invert(lossy(problem, 0.0, loses="runs where it is thick"))
    assert "Failures are not random" in notes(posterior)
    assert "most of all where thickness is high" in notes(posterior)


def test_that_failures_far_from_the_posterior_are_no_matter() -> None:
    rng = np.random.default_rng(0)
    latents, sites = 4.0 * rng.standard_normal((500, 3, 3)), np.arange(3)
    outcomes = RunOutcomes()
    outcomes.add(latents, sites, latents[..., 2] < 4.0)
    assert outcomes.failures > 100
    around, spread = np.zeros((12, 3)), np.broadcast_to(np.eye(3), (12, 3, 3))
    assert outcomes.find_pattern(map_problem(), around, spread) == []
    [sentence] = outcomes.find_pattern(map_problem(), around, 9.0 * spread)
    assert "where thickness is high" in sentence
