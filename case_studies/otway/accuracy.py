"""How far three posteriors of the synthetic line are from converged chains, and what each cost.

With --data, the bound on the real times instead: at the paper's prior, and with the length-scales learnt.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import invgp
from invgp.inference.comparison import compare, converged, rows, verdict
from invgp.inference.monitor import Silent
from invgp.inference.pools import Loop
from invgp.inference.reference import Direct, reference

HERE = Path(__file__).resolve().parent
WAYS = {
    "coupled, emulator": {},
    "coupled, simulator": {"emulator": False},
    "full Gaussian (paper)": {"posterior": "full gaussian"},
}
START = 4480.0  # m, a tenth of the line: where learnt length-scales start


def main() -> None:
    """Print one table or the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000, help="kept from each of four chains (default: 4000)")
    parser.add_argument("--data", type=Path, help="the real times, as a CSV file")
    arguments = parser.parse_args()
    if arguments.data is None:
        compare_with_chains(arguments.draws)
    else:
        print_bounds(arguments.data)


def compare_with_chains(draws: int) -> None:
    """Three posteriors of the synthetic line beside the chains, which are kept in results/ and go on from there."""
    problem = invgp.load(HERE / "otway.toml")
    checkpoint = HERE / "results" / "accuracy.chains.npz"
    checkpoint.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as directory:
        run = Direct.of(problem, Path(directory), Loop(), Silent())
        chains = reference(problem, run, checkpoint=checkpoint, draws=draws)
    print(f"{'':24}{'runs a site':>12}{'error of mean':>15}{'ratio of spreads':>18}{'ELBO':>9}")
    for name, settings in WAYS.items():
        posterior = invgp.invert(replace(problem, inference=replace(problem.inference, **settings)))
        comparison = compare(problem, posterior, chains)
        found = rows(comparison)
        error = np.sqrt(np.mean([row.error**2 for row in found]))
        ratio = np.median(np.concatenate([comparison[f"{n}_ratio"].values.ravel() for n in ("depth", "velocity")]))
        runs, elbo = posterior.attrs["invgp_runs"] / problem.survey.size, float(posterior["elbo"][-1])
        print(f"{name:24}{runs:12,.0f}{error:15.3f}{ratio:18.3f}{elbo:9.1f}")
    floor = np.sqrt(np.mean([row.error_mcse**2 for row in found]))
    print(f"{'chains':24}{chains.runs / problem.survey.size:12,.0f}{floor:15.3f}{'(their own Monte Carlo error)':>33}")
    print(verdict(comparison) if converged(comparison) else f"No reference yet: {verdict(comparison)}")


def print_bounds(data: Path) -> None:
    """The bound on the real times."""
    problem = invgp.load(HERE / "paper_prior.toml", data=data)
    coupled = replace(problem, inference=replace(problem.inference, posterior="coupled gaussian", samples=None))
    learning = [
        replace(latent, length_scale=np.asarray([START]), learn={"length_scale": np.inf}) for latent in problem.latents
    ]
    cases = {
        "full Gaussian (paper)": problem,
        "coupled": coupled,
        "coupled, length-scales learnt": replace(coupled, latents=tuple(learning)),
    }
    print(f"{'':32}{'runs a site':>12}{'ELBO':>9}  length-scales")
    for name, case in cases.items():
        posterior = invgp.invert(case)
        scales = [float(posterior[latent.name].attrs["length_scale"]) for latent in case.latents if latent.learn]
        learnt = ", ".join(f"{scale / 1000:.1f} km" for scale in scales)
        runs, elbo = posterior.attrs["invgp_runs"] / case.survey.size, float(posterior["elbo"][-1])
        print(f"{name:32}{runs:12,.0f}{elbo:9.1f}  {learnt}")


if __name__ == "__main__":
    main()
