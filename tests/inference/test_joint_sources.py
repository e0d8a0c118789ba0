"""Several sources, each with its own sites and simulator, against closed forms and single surveys."""

from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.joint_problems import (
    LOG,
    NOISE,
    SITES,
    WELLS,
    ClosedForm,
    deviations,
    latents,
    linear_combination,
    observations,
)
from invgp.errors import ConfigError
from invgp.execution.pools import Loop
from invgp.inference.invert import open_recorders
from invgp.progress import SilentMonitor
from invgp.sampling.tolerant_simulator import TolerantSimulator

WEST = np.arange(20) < 9
OTHER = np.asarray([130.0, 555.0, 1111.0, 1777.0])  # sites of a second method, which measures the velocity alone
OTHER_DATA = np.asarray([51.0, 55.0, 46.0, 49.0])


def source(x, y, name="y", forward=linear_combination, noise=NOISE, **inference):
    used = {key: value for key, value in latents().items() if name == "y" or key == "velocity"}
    return invgp.define(
        {"x": x, name: y},
        coordinates={"x": "m"},
        observations={name: "1"},
        latents=used,
        forward=forward,
        noise={"std": {name: noise}},
        inference={"posterior": "coupled gaussian"} | inference,
    )


def halves(**inference):
    y = observations()
    west, east = (source(SITES[part], y[part], **inference) for part in (WEST, ~WEST))
    return west.join({"east": east})


def velocity_only(velocity):
    return velocity - 1.0


def joint(direct=None, **inference):
    """The whole line, a second method at other sites, and direct data."""
    first = source(SITES, observations(), **inference)
    second = source(OTHER, OTHER_DATA, "v", velocity_only, 2.0, **inference)
    found = first.join({"sonic": second})
    if direct:
        full = invgp.define(
            {"x": SITES, "y": observations()},
            coordinates={"x": "m"},
            observations={"y": "1"},
            latents=latents(),
            forward=linear_combination,
            noise={"std": {"y": NOISE}},
            direct=direct,
            inference={"posterior": "coupled gaussian"} | inference,
        )
        found = found.join({p.name: p.problem for p in full.parts[1:]}, direct=list(direct))
    return found


class Joint(ClosedForm):
    """Closed form with the second method."""

    def __init__(self, groups=()):
        super().__init__(groups)
        for x, y in zip(OTHER, OTHER_DATA, strict=True):
            self._add({"velocity": 1.0}, [x], [1.0], y + 1.0, 2.0)


@pytest.mark.parametrize("inference", [{}, {"emulator": False}, {"emulator": False, "batch": 6}])
def test_that_two_halves_of_a_survey_are_the_whole(inference):
    found = invgp.invert(halves(**inference))
    assert deviations(found, ClosedForm(), SITES, np.arange(20)) < 1e-6
    assert sum(found.attrs["invgp_source_runs"]) == found.attrs["invgp_runs"]
    assert found.attrs["invgp_sources"] == "survey east"


@pytest.mark.parametrize("direct", [None, {"wells": WELLS, "log": LOG}], ids=["two simulators", "and direct data"])
@pytest.mark.parametrize("inference", [{}, {"emulator": False}])
def test_that_a_mix_of_sources_has_the_closed_form(direct, inference):
    found = invgp.invert(joint(direct, **inference))
    exact = Joint((direct or {}).values())
    places = [*SITES, *OTHER, *(WELLS["coordinates"]["x"] if direct else [])]
    assert deviations(found, exact, places, np.arange(len(places))) < 1e-6


@pytest.mark.slow
def test_that_draws_of_a_mix_of_sources_have_the_moments_of_the_closed_form():
    found = invgp.invert(joint({"wells": WELLS}, posterior="sampled"))
    places = [*SITES, *OTHER, *WELLS["coordinates"]["x"]]
    assert found.attrs["invgp_converged"] == "yes"
    assert deviations(found, Joint([WELLS]), places, np.arange(len(places))) < 0.15


def test_that_a_source_switched_off_is_the_problem_without_it():
    problem = joint({"wells": WELLS})
    alone = invgp.invert(source(SITES, observations()))
    found = invgp.invert(problem.without("sonic", "wells"))
    for name in ("depth", "depth_std", "velocity_sample"):
        np.testing.assert_array_equal(found[name], alone[name])
    both = invgp.invert(problem.without("sonic"))
    assert deviations(both, ClosedForm([WELLS]), SITES, np.arange(20)) < 1e-6
    sonic = problem.without("survey", "wells")
    assert [part.name for part in sonic.parts] == ["sonic"]
    assert sonic.survey.size == len(OTHER)


def test_that_each_source_has_its_share_of_runs():
    first, second = source(SITES, observations()), source(OTHER, OTHER_DATA, "v", velocity_only, 2.0)
    few, more = (
        invgp.invert(first.join({"sonic": second.with_inference(runs_per_site=runs)})).attrs["invgp_source_runs"]
        for runs in (6, 40)
    )
    assert few[1] <= 6 * len(OTHER)
    assert more[1] <= 40 * len(OTHER)
    assert few[0] == more[0]


def fails_above(velocity):
    return np.where(velocity > 53.0, np.nan, velocity - 1.0)


def test_that_failures_are_counted_by_source():
    second = source(OTHER, OTHER_DATA, "v", fails_above, 2.0, max_failed_share=0.5)
    found = invgp.invert(source(SITES, observations(), max_failed_share=0.5).join({"sonic": second}))
    failed = found.attrs["invgp_source_runs_failed"]
    assert failed[0] == 0 < failed[1] == found.attrs["invgp_runs_failed"]


def test_that_a_resumed_joint_inversion_is_bit_identical(tmp_path):
    problem, ledger = joint(), tmp_path / "runs.db"
    first, again = (invgp.invert(problem, ledger=ledger) for _ in range(2))
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"] == first.attrs["invgp_runs"]
    np.testing.assert_array_equal(first["depth"], again["depth"])


def test_that_learnt_noise_belongs_to_its_source():
    first = source(SITES, observations())
    second = source(OTHER, OTHER_DATA, "v", velocity_only, 2.0)
    second = replace(second, noise=replace(second.noise, learn={"v": 2.0}))
    found = invgp.invert(first.join({"sonic": second}))
    assert np.nanmax(found["y_noise_std"]) == NOISE
    assert np.nanmax(found["v_noise_std"]) != 2.0


def test_that_problems_that_do_not_fit_are_refused():
    first = source(SITES, observations())
    other = invgp.define(
        {"km": OTHER, "v": OTHER_DATA},
        coordinates={"km": "km"},
        observations={"v": "1"},
        latents={"velocity": latents()["velocity"]},
        forward=velocity_only,
        noise={"std": {"v": 2.0}},
    )
    with pytest.raises(ConfigError, match="others: must have the same coordinates"):
        first.join({"sonic": other})
    with pytest.raises(ConfigError, match="without: must be a source, was 'mt'"):
        first.without("mt")
    with pytest.raises(ConfigError, match="without: must leave a source with a simulator"):
        first.without("survey")


@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_a_source_can_be_switched_off_without_new_runs(tmp_path, posterior):
    """The posterior is the closed form of the data that are left, and no run is made, however often it is asked for."""
    problem, ledger = joint({"wells": WELLS}, posterior=posterior), tmp_path / "runs.db"
    with pytest.raises(ConfigError, match="ledger: must hold enough runs of survey for a posterior without new runs"):
        invgp.invert(problem.without("sonic"), ledger=ledger, new_runs=False)
    whole = invgp.invert(problem, ledger=ledger)
    found = invgp.invert(problem.without("sonic"), ledger=ledger, new_runs=False)
    assert whole.attrs["invgp_runs"] > 0 == found.attrs["invgp_runs"]
    assert found.attrs["invgp_converged"] == "yes"
    assert deviations(found, ClosedForm([WELLS]), SITES, np.arange(20)) < (0.15 if posterior == "sampled" else 1e-6)
    again = invgp.invert(problem.without("sonic"), ledger=ledger, new_runs=False)
    np.testing.assert_array_equal(found["depth"], again["depth"])


def cubic_combination(depth, velocity):
    return 0.6 * depth + 1.1 * velocity + 2e-5 * (depth - 100.0) ** 3


def test_that_runs_that_do_not_cover_the_posterior_are_reported(tmp_path):
    """A precise well narrows the depths everywhere: without it they extend far beyond the runs of the last steps."""
    well = {"coordinates": {"x": SITES}, "values": {"top": {"quantity": "depth", "value": 100.0, "std": 0.05}}}
    first = source(SITES, observations(), forward=cubic_combination)
    wells = invgp.define(
        {"x": SITES, "y": observations()},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents=latents(),
        forward=cubic_combination,
        noise={"std": {"y": NOISE}},
        direct={"wells": well},
    )
    problem = first.join({"wells": wells.parts[1].problem}, direct=["wells"])
    assert invgp.invert(problem, ledger=tmp_path / "runs.db").attrs["invgp_converged"] == "yes"
    found = invgp.invert(problem.without("wells"), ledger=tmp_path / "runs.db", new_runs=False)
    exact = invgp.invert(problem.without("wells"))
    off = np.abs(found["depth"] - exact["depth"]).max() / exact["depth_std"].min()
    assert found.attrs["invgp_converged"] == "no" or off < 0.1


def test_that_no_new_runs_need_a_ledger():
    with pytest.raises(ConfigError, match="ledger: must be given with new_runs = False"):
        invgp.invert(joint(), new_runs=False)


def test_that_chains_keep_the_runs_of_all_simulators_in_the_ledger(tmp_path):
    problem = joint()
    with open_recorders(problem, tmp_path / "runs.db") as recorders:
        run = TolerantSimulator.of(problem, tmp_path, Loop(), SilentMonitor(), recorders)
        latents = np.zeros((1, problem.survey.size, 2))
        latents[..., 0], latents[..., 1] = 100.0 + np.arange(24), 50.0 + np.arange(24)
        for _ in range(2):
            run.run_sites(latents, np.arange(24))
        assert run.simulator.source_runs == {"survey": 40, "sonic": 8}
        assert run.simulator.reused == 24
