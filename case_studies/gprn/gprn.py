"""Compare a Gaussian process regression network with independent processes: three outputs with a common cause.

Synthetic by default, with the truth known. With --sarcos, the robot arm of the paper: joints 4 and 7 from
sarcos_inv.mat and sarcos_inv_test.mat in that folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy.io import loadmat

from invgp import SAVIGP
from invgp.core.stochastic_optimisers import Adam
from invgp.core.training import MiniBatches
from invgp.errors import ConfigError
from invgp.likelihoods import GPRN, Gaussian
from invgp.measures import negative_log_predictive_density, standardised_squared_error
from invgp.plots.style import COLOURS, GREY, PAGE, STYLE, add_legend, letter_panels

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run
from recording import record

Floats = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
SIZE, INDUCING = 300, 50
NOISE = 0.1
SIGNS = np.array([1.0, 1.0, -1.0])  # prior means of the weights
SEEN = np.array([1.0, 0.12, 0.12])  # share of the sites where each output is measured
NETWORK, INDEPENDENT = "network", "independent"
JOINTS = np.array([3, 6])  # 4 and 7, of the seven torques after 21 inputs


class Survey(NamedTuple):
    """Positions (N, 1), true outputs (N, 3), measured ones (N, 3), and which of these are for training (N, 3)."""

    X: Floats
    truth: Floats
    measured: Floats
    train: NDArray[np.bool_]


class Score(NamedTuple):
    """Scores at excluded values: error of the mean compared with the truth, and NLPD of the measured values."""

    rmse: float
    nlpd: float
    inside: float  # share of the kept values in the 95% intervals


def draw_survey(seed: int, size: int = SIZE) -> Survey:
    """Draw one fast node and weights that change slowly along the line; two of the outputs have few measurements."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0.0, 10.0, (size, 1)), axis=0)

    def process(length: float, count: int) -> Floats:
        covariance = np.exp(-0.5 * ((X - X.T) / length) ** 2) + 1e-8 * np.eye(size)
        return np.asarray(np.linalg.cholesky(covariance) @ rng.standard_normal((size, count)))

    node = process(0.4, 1)
    truth = (SIGNS + 0.5 * process(4.0, 3)) * node
    return Survey(X, truth, truth + NOISE * rng.standard_normal(truth.shape), rng.random(truth.shape) < SEEN)


def models(inducing: int) -> dict[str, SAVIGP]:
    """Return the network, and a process for each output."""
    lengths = np.array([[3.0], [3.0], [3.0], [1.0]])
    network = GPRN(0.3, nodes=1, outputs=3)
    return {
        NETWORK: SAVIGP(network, inducing=inducing, prior_mean=(*SIGNS, 0.0), length_scale=lengths),
        INDEPENDENT: SAVIGP(Gaussian([0.3] * 3), inducing=inducing, length_scale=np.array([1.0])),
    }


def score_model(model: SAVIGP, survey: Survey) -> Score:
    """Score a model at values that were not measured or were excluded."""
    kept = ~survey.train
    mean, std = model.predict(survey.X, return_std=True)
    density = model.log_predictive_density(survey.X, np.where(kept, survey.measured, np.nan))
    some = kept.any(axis=1)
    inside = np.abs(survey.measured - mean) < 1.96 * std
    return Score(
        float(np.sqrt(np.mean((mean - survey.truth)[kept] ** 2))),
        float(-np.sum(np.asarray(density)[some]) / kept.sum()),
        float(inside[kept].mean()),
    )


def draw(survey: Survey, fitted: dict[str, SAVIGP], path: Path) -> None:
    """Draw the outputs with few measurements, for both models."""
    with rc_context(STYLE):
        figure = Figure((PAGE, 4.2), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey="row")
        x = survey.X[:, 0]
        for column, model in zip(axes.T, fitted.values(), strict=True):
            mean, std = model.predict(survey.X, return_std=True)
            for ax, output, colour in zip(column, (1, 2), COLOURS, strict=False):
                reach = 1.96 * std[:, output]
                ax.fill_between(x, mean[:, output] - reach, mean[:, output] + reach, color=colour, alpha=0.25, lw=0)
                ax.plot(x, mean[:, output], color=colour)
                ax.plot(x, survey.truth[:, output], color="black", lw=0.8, ls=":")
                seen = survey.train[:, output]
                ax.plot(x[seen], survey.measured[seen, output], ".", color=GREY, ms=4)
                ax.set_ylabel(f"output {output + 1}")
            column[-1].set_xlabel("position")
        letter_panels(axes.ravel(), [name for _ in (1, 2) for name in fitted])
        handles = [
            Line2D([], [], color=COLOURS[0], label="posterior mean, 95% band"),
            Line2D([], [], color="black", lw=0.8, ls=":", label="truth"),
            Line2D([], [], color=GREY, marker=".", ls="", label="measured"),
        ]
        add_legend(figure, handles)
        figure.savefig(path)


def synthetic(seeds: Sequence[int], size: int, inducing: int) -> dict[str, list[Score]]:
    """Score both models on some surveys, and draw the figure of the first."""
    found: dict[str, list[Score]] = {NETWORK: [], INDEPENDENT: []}
    (HERE / "results").mkdir(exist_ok=True)
    for seed in seeds:
        survey, fitted = draw_survey(seed, size), models(inducing)
        for name, model in fitted.items():
            start = time.process_time()
            model.fit(survey.X, np.where(survey.train, survey.measured, np.nan))
            one = score_model(model, survey)
            found[name].append(one)
            print(
                f"survey {seed}, {name:12} RMSE {one.rmse:.3f}, NLPD {one.nlpd:6.3f}, inside 95% {one.inside:.1%}, "
                f"{time.process_time() - start:.0f} s of processors",
                flush=True,
            )
        if seed == seeds[0]:
            draw(survey, fitted, HERE / "results" / "gprn.png")
    return found


def print_table(found: dict[str, list[Score]]) -> None:
    """Print means and standard deviations over the surveys."""
    print(f"{'':14}{'RMSE against the truth':>26}{'NLPD':>18}{'inside 95%':>14}")
    for name, scores in found.items():
        rmse, nlpd, inside = (np.array([getattr(s, field) for s in scores]) for field in Score._fields)
        cells = f"{rmse.mean():16.3f} ± {spread(rmse):.3f} {nlpd.mean():12.3f} ± {spread(nlpd):.3f}"
        print(f"{name:14}{cells}{inside.mean():12.1%}")


def spread(values: Sequence[float] | Floats) -> float:
    """Compute the sample standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def entry(found: dict[str, list[Score]]) -> dict[str, object]:
    """Return the entry for results.json."""
    rows = []
    for measure, field in (("RMSE against the truth", "rmse"), ("NLPD", "nlpd")):
        ours, theirs = ([getattr(s, field) for s in found[name]] for name in (NETWORK, INDEPENDENT))
        rows.append(
            {
                "measure": measure,
                "setting": f"{len(ours)} surveys",
                "ours": np.mean(ours),
                "spread": spread(ours),
                "reference": np.mean(theirs),
                "source": "independent processes",
                "better": "lower",
            }
        )
    return {
        "experiment": "sarcos",
        "command": "bash case_studies/gprn/run.sh",
        "page": "gprn.md",
        "figure": "gprn.png",
        "caption": "Two outputs with few measurements, predicted by a network and by independent processes",
        "instead": "a synthetic set of three outputs with known truth. The SARCOS data are public, but no known "
        "package contains them; `run.sh --sarcos FOLDER` reads their files.",
        "rows": rows,
    }


def sarcos(folder: Path, inducing: int, epochs: int) -> None:
    """Fit joints 4 and 7 of the robot arm: SSE and NLPD, averaged over both, as in the paper."""
    train, test = (poses(folder / name) for name in ("sarcos_inv.mat", "sarcos_inv_test.mat"))
    if inducing > len(train):
        raise ConfigError(f"--inducing must be at most {len(train):,}, the poses for training, was {inducing:,}")
    X, X_test = ((part[:, :21] - train[:, :21].mean(axis=0)) / train[:, :21].std(axis=0) for part in (train, test))
    torques, torques_test = (part[:, 21 + JOINTS] for part in (train, test))
    shift, scale = torques.mean(axis=0), torques.std(axis=0)
    method = MiniBatches(optimiser=Adam(rate=0.01), batch=min(1000, len(X)), epochs=epochs, samples=32)
    network = GPRN(0.3, nodes=1, outputs=2)
    model = SAVIGP(network, inducing=inducing, prior_mean=(1.0, 1.0, 0.0), length_scale=np.full(21, 4.0), method=method)
    model.fit(X, (torques - shift) / scale)
    scores = [joint_score(model, X_test, (torques_test - shift) / scale, joint) for joint in range(len(JOINTS))]
    error, density = np.mean(scores, axis=0)
    nlpd = density + np.mean(np.log(scale))  # on the scale of the torques
    print(f"joints 4 and 7 of {len(X_test):,} poses, {len(X):,} for training: SSE {error:.4f}, NLPD {nlpd:.4f}")


def poses(path: Path) -> Floats:
    """Read inputs and torques (N, 28) from a file of the robot arm."""
    if not path.is_file():
        raise ConfigError(f"--sarcos must name the folder of {path.name}; there is none in {str(path.parent)!r}")
    try:
        table = np.asarray(loadmat(path)[path.stem], dtype=np.float64)
    except (ValueError, NotImplementedError, KeyError) as error:
        raise ConfigError(f"{str(path)!r} must be a MATLAB file with the table {path.stem!r}: {error}") from error
    if table.ndim != 2 or table.shape[1] != 28:
        raise ConfigError(f"{path.stem!r} in {str(path)!r} must have 28 columns, has the shape {table.shape}")
    return table


def joint_score(model: SAVIGP, X: Floats, torques: Floats, joint: int) -> tuple[float, float]:
    """Compute SSE and NLPD of one joint."""
    others = np.arange(torques.shape[1]) != joint
    alone = np.where(others, np.nan, torques)
    densities = model.log_predictive_density(X, alone)
    return standardised_squared_error(alone, model.predict(X)), negative_log_predictive_density(densities)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sarcos", type=Path, metavar="FOLDER", help="folder with the files of the robot arm")
    parser.add_argument("--surveys", type=at_least(1), default=2, help="number of synthetic surveys (default: 2)")
    parser.add_argument("--size", type=at_least(2), default=SIZE, help=f"number of sites of a survey (default: {SIZE})")
    parser.add_argument(
        "--inducing", type=at_least(1), default=INDUCING, help=f"number of inducing inputs (default: {INDUCING})"
    )
    parser.add_argument(
        "--epochs", type=at_least(1), default=20, help="epochs of the fit to the robot arm (default: 20)"
    )
    parser.add_argument("--record", action="store_true", help="also write the table to results.json")
    chosen = parser.parse_args()
    if chosen.sarcos is not None:
        sarcos(chosen.sarcos, chosen.inducing, chosen.epochs)
        return
    if chosen.inducing > chosen.size:
        parser.error(f"--inducing must be at most {chosen.size}, the size of a survey, was {chosen.inducing}")
    found = synthetic(range(1, chosen.surveys + 1), chosen.size, chosen.inducing)
    print_table(found)
    if chosen.record:
        record(HERE, entry(found))


if __name__ == "__main__":
    run(main)
