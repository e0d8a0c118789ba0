"""Small problems that tests invert."""

from pathlib import Path

import numpy as np

from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import Matern32, Matern52, SquaredExponential
from invgp.forward_models.seismic import two_way_times
from invgp.links import LINKS
from invgp.problem import (
    Column,
    InferenceSettings,
    Latent,
    Noise,
    Observation,
    OutputSettings,
    Problem,
    SimulatorVariable,
    Survey,
)
from invgp.units import conversion


def apparent_resistivity(resistivity, thickness, elevation):
    """Not physics: two outputs that depend on both latents and on a covariate."""
    near = 0.7 * resistivity[:, 0] + 0.3 * resistivity[:, 1] + 0.01 * elevation
    return {"near": near, "far": np.stack([resistivity[:, 1] + thickness, resistivity[:, 0] * 0.5], axis=-1)}


def matrix_product(resistivity, thickness, elevation):
    """A function whose last digits depend on the number of BLAS threads."""
    weights = np.random.default_rng(0).standard_normal((600, 600))
    answer = apparent_resistivity(resistivity, thickness, elevation)
    tail = np.outer(thickness, np.ones(600)) @ weights @ weights.T
    return {**answer, "near": answer["near"] + 1e-9 * tail.sum(axis=-1)}


def map_problem(**inference) -> Problem:
    """Twelve sites on a map, a log-linked latent of two layers, a scalar latent, a covariate, missing data, a CRS."""
    rng = np.random.default_rng(5)
    easting, northing = 5e5 + 100.0 * rng.random(12), 6e6 + 80.0 * rng.random(12)
    near = 60 + 10 * rng.standard_normal((12, 1))
    far = 1e-3 * np.stack([50 + 5 * rng.standard_normal(12), 30 + rng.standard_normal(12)], axis=-1)
    near[3], far[7, 1] = np.nan, np.nan
    survey = Survey(
        coordinates=(
            Column("easting", "m", easting, "easting", "projection_x_coordinate"),
            Column("northing", "m", northing, "northing", "projection_y_coordinate"),
        ),
        observations=(
            Observation("near", "ohm m", near, long_name="apparent resistivity, short array"),
            Observation("far", "kohm m", far, "gate", ("early", "late"), "apparent resistivity, long array"),
        ),
        covariates=(Column("elevation", "m", 10.0 * rng.random(12), standard_name="surface_altitude"),),
        crs="EPSG:28354",
    )
    latents = (
        Latent("resistivity", "ohm m", np.asarray([60.0, 40.0]), np.asarray([20.0, 15.0]),
               Matern32(1.0, np.asarray([50.0, 30.0])), LINKS["log"], "layer", (1, 2), "electrical resistivity"),
        Latent("thickness", "m", np.asarray([10.0]), np.asarray([3.0]), Matern52(1.0, np.asarray([60.0, 60.0]))),
    )  # fmt: skip
    model = CallableModel(
        function=apparent_resistivity,
        inputs=(Quantity("resistivity", "ohm m", (1, 2)), Quantity("thickness", "m"), Quantity("elevation", "m")),
        outputs=(Quantity("near", "ohm m"), Quantity("far", "ohm m", ("early", "late"))),
    )
    return Problem(
        title="A map",
        survey=survey,
        latents=latents,
        noise=Noise("gaussian", {"near": np.full((12, 1), 5.0), "far": np.full((12, 2), 4e-3)}),
        forward=model,
        inputs=(SimulatorVariable("resistivity"), SimulatorVariable("thickness"), SimulatorVariable("elevation")),
        outputs=(SimulatorVariable("near"), SimulatorVariable("far", conversion("ohm m", "kohm m"))),
        inference=InferenceSettings(
            **(
                {"posterior": "coupled gaussian", "seed": 3}
                | ({"samples": 64} if "posterior" in inference else {})
                | inference
            )
        ),
        output=OutputSettings(file=Path("unused.nc"), quantiles=(0.05, 0.5, 0.95), realizations=7),
    )


WEIGHTS = np.asarray([[1.0, 0.5], [-0.3, 2.0]])


def weighted_sum(velocity, depth):
    """Linear in both latents."""
    return {"first": 1.0 * velocity + 0.5 * depth, "second": -0.3 * velocity + 2.0 * depth}


def linear_problem(link="identity", **inference) -> Problem:
    """Fifteen sites on a map, two latents and a linear simulator: with the identity link the posterior is exact."""
    rng = np.random.default_rng(11)
    X = rng.uniform(0.0, 100.0, (15, 2))
    y = rng.standard_normal((15, 2)) * 2.0 + np.asarray([10.0, 12.0])
    survey = Survey(
        coordinates=(
            Column("easting", "m", X[:, 0], "easting", "projection_x_coordinate"),
            Column("northing", "m", X[:, 1], "northing", "projection_y_coordinate"),
        ),
        observations=(Observation("first", "1", y[:, :1]), Observation("second", "1", y[:, 1:])),
        crs="EPSG:28354",
    )
    latents = (
        Latent("velocity", "m s-1", np.asarray([7.0]), np.asarray([2.0]), Matern32(1.0, np.asarray([30.0, 40.0])),
               LINKS[link]),
        Latent("depth", "m", np.asarray([6.0]), np.asarray([1.5]), SquaredExponential(1.0, np.asarray([25.0, 25.0]))),
    )  # fmt: skip
    return Problem(
        title="A linear map",
        survey=survey,
        latents=latents,
        noise=Noise("gaussian", {"first": np.full((15, 1), 0.7), "second": np.full((15, 1), 0.4)}),
        forward=CallableModel(
            function=weighted_sum,
            inputs=(Quantity("velocity", "m s-1"), Quantity("depth", "m")),
            outputs=(Quantity("first", "1"), Quantity("second", "1")),
        ),
        inputs=(SimulatorVariable("velocity"), SimulatorVariable("depth")),
        outputs=(SimulatorVariable("first"), SimulatorVariable("second")),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", "seed": 3, **inference}),
        output=OutputSettings(file=Path("unused.nc"), quantiles=(0.05, 0.5, 0.95), realizations=7),
    )


def reflector_map(sites: int = 150, **inference) -> Problem:
    """Two reflectors below sites on a map, with a gap between them and no times of the lower one in the east."""
    rng = np.random.default_rng(8)
    places = rng.uniform(0.0, [12e3, 9e3], (3 * sites, 2))
    places = places[np.hypot(*(places - [5e3, 5.5e3]).T) > 1.8e3][:sites]
    east, north = places.T
    depth = np.stack([420 + 60 * np.sin(east / 2e3), 1100 + 160 * np.cos(north / 2.2e3) + 0.02 * east], axis=-1)
    velocity = np.stack([1950 + 60 * np.cos(east / 3e3), 2500 + 90 * np.sin(north / 3e3)], axis=-1)
    noise = np.tile([0.012, 0.02], (sites, 1))
    times = two_way_times(depth, velocity) + noise * rng.standard_normal((sites, 2))
    times[east > 9e3, 1] = np.nan
    latents = (
        Latent("depth", "m", np.asarray([420.0, 1150.0]), np.asarray([80.0, 200.0]), Matern52(1.0, np.full(2, 3e3)),
               LINKS["identity"], "layer", (1, 2), "depth of the reflector", positive="down"),
        Latent("velocity", "m s-1", np.asarray([1950.0, 2500.0]), np.asarray([150.0, 200.0]),
               Matern52(1.0, np.full(2, 3e3)), LINKS["identity"], "layer", (1, 2), "seismic velocity"),
    )  # fmt: skip
    model = CallableModel(
        function=two_way_times,
        inputs=(Quantity("depth", "m", (1, 2)), Quantity("velocity", "m s-1", (1, 2))),
        outputs=(Quantity("time", "s", (1, 2)),),
    )
    survey = Survey(
        coordinates=(
            Column("easting", "m", 5e5 + east, "easting", "projection_x_coordinate"),
            Column("northing", "m", 5.72e6 + north, "northing", "projection_y_coordinate"),
        ),
        observations=(Observation("time", "s", times, "layer", (1, 2), "two-way travel time"),),
        crs="EPSG:28354",
    )
    return Problem(
        title="Two reflectors on a map, synthetic",
        survey=survey,
        latents=latents,
        noise=Noise("gaussian", {"time": noise}),
        forward=model,
        inputs=(SimulatorVariable("depth"), SimulatorVariable("velocity")),
        outputs=(SimulatorVariable("time"),),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", "seed": 3, **inference}),
        output=OutputSettings(file=Path("unused.nc"), quantiles=(0.025, 0.5, 0.975), realizations=20),
    )
