"""`invgp compare`: a posterior file against draws from the same problem."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from invgp import netcdf
from invgp.cli import INTERRUPTED
from invgp.cli.ledgers import holds_runs, ledger_of
from invgp.cli.options import LARGEST_SEED, data_option, refuse_field, scheduler_option, workers_option
from invgp.cli.outputs import check_posterior_path, check_writable, remove_if_empty
from invgp.cli.progress import SECONDS_BETWEEN_LINES, rate
from invgp.cli.voice import give, json_option, note, say, speaks, voice, warn
from invgp.config import load
from invgp.errors import ConfigError, RunsFailedError
from invgp.wording import counted, duration

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Latent, Problem

LEVELS = 4  # directories from the posterior upwards, and from its survey, where its config is looked for
PAPER = 120  # columns, where the table goes to a file


@click.command(
    epilog="Examples: invgp compare posterior.nc; invgp compare posterior.nc --draws 5000 -o reference.nc; "
    "invgp compare results/line.nc --config survey.toml --workers 4"
)
@click.argument("posterior", type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="The posterior's.  [default: found by its text]")
@data_option
@click.option("--chains", type=click.IntRange(min=2), default=4, show_default=True, help="That must agree.")
@click.option("--draws", type=click.IntRange(min=4), default=2000, show_default=True, help="Kept from each chain.")
@click.option("--burn-in", type=click.IntRange(min=0), default=200, show_default=True, help="Iterations thrown away.")
@click.option("--thin", type=click.IntRange(min=1), default=1, show_default=True, help="Iterations to a draw.")
@click.option("--seed", type=click.IntRange(min=0, max=LARGEST_SEED), default=0, show_default=True)
@click.option(
    "--emulator",
    is_flag=True,
    help="Draw on an emulator, with the simulator only where that is not good enough.",
)
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="Keeps the runs of --emulator.  [default: that of POSTERIOR]"
)
@workers_option
@scheduler_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="netCDF for the draws and the comparison.")
@click.option("--plot", type=click.Path(path_type=Path), help="PNG, SVG or PDF.  [default: beside POSTERIOR]")
@json_option
def command(
    posterior: Path,
    config: Path | None,
    data: Path | None,
    emulator: bool,
    ledger: Path | None,
    workers: int | None,
    scheduler: str | None,
    output: Path | None,
    plot: Path | None,
    **settings: int,
) -> None:
    """Compare POSTERIOR, a file that `invgp run` wrote, with draws from the same problem by elliptical slice sampling.

    The draws take many runs of the simulator. They are kept beside POSTERIOR: after Ctrl-C, or with more draws, the
    same command goes on from there. With --emulator the ledger keeps the runs.
    """
    dataset = netcdf.read(posterior)
    config = config or found_config(posterior, dataset)
    problem = same_problem(dataset, config, data)
    plot = plot or posterior.with_name(f"{posterior.stem}_comparison.png")
    check_outputs(output, plot, posterior, problem, config)
    if emulator:
        check_emulator(problem)
        ledger = ledger or ledger_of(problem, posterior)
    elif ledger is not None:
        raise ConfigError("--ledger: must be left out without --emulator: the file of the chains keeps their runs")
    started = time.perf_counter()
    checkpoint = chains_of(posterior, emulator=emulator)
    comparison, made = compared(problem, dataset, checkpoint, ledger, workers, scheduler, settings, emulator=emulator)
    if output is not None:
        netcdf.write(comparison, output)
    draw(dataset, comparison, plot)
    seconds = time.perf_counter() - started
    tell(comparison, made, seconds)
    for path in filter(None, (output, plot)):
        say(path)
    give(facts(comparison) | {"runs_now": made, "seconds": seconds, "comparison": output, "figure": plot})


def found_config(path: Path, posterior: xr.Dataset) -> Path:
    """The config with the text that the posterior was made from, beside or above the posterior or its survey."""
    text = posterior.attrs.get("invgp_config", "")
    homes = [Path(start).absolute() for start in (path, posterior.attrs.get("invgp_survey", "")) if str(start)]
    for directory in (parent for home in homes for parent in list(home.parents)[:LEVELS]):
        for candidate in sorted(directory.glob("*.toml")) if text else ():
            if _text(candidate) == text:
                return candidate
    raise ConfigError(
        f"the config that {str(path)!r} was made from was not found beside or above it: name it with --config"
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def same_problem(posterior: xr.Dataset, config: Path, data: Path | None) -> Problem:
    """The problem that the posterior solves, with the noise that it found."""
    problem, wanted = load(config, data=data), posterior.attrs["invgp_survey_digest"]
    refuse_field(problem, "compare")
    made_from = Path(posterior.attrs["invgp_survey"])
    if data is None and problem.survey.digest != wanted and made_from.is_file():  # as of `invgp run --data`
        problem = load(config, data=made_from)
    if problem.survey.digest != wanted:
        raise ConfigError(
            f"the survey {problem.survey.file!r} is not that of the posterior, which was {str(made_from)!r}: "
            "name the same file with --data"
        )
    names = posterior.attrs["invgp_latents"].split()
    if any(f"{name}_prior" not in posterior for name in names):
        raise ConfigError("POSTERIOR: must be a file that `invgp run` wrote, was one without a posterior")
    shapes = {latent.name: latent.size for latent in problem.latents}
    if {name: _labels(posterior, name) for name in names} != shapes:
        raise ConfigError(f"the config {str(config)!r} has other latents than the posterior")
    for latent in problem.latents:
        given = posterior[f"{latent.name}_prior"].isel(site=0).values
        if not latent.learn and not np.allclose(given, latent.mean, rtol=1e-6):
            raise ConfigError(f"the config {str(config)!r} has another prior of {latent.name!r} than the posterior")
    if problem.config_text != posterior.attrs["invgp_config"]:
        warn(f"the posterior was made from another config than {config}")
    if problem.forward.digest != posterior.attrs["invgp_simulator_digest"]:
        warn("the simulator has changed since the posterior was made")
    noise = {
        o.name: posterior[f"{o.name}_noise_std"].values.reshape(o.values.shape) for o in problem.survey.observations
    }
    latents = tuple(_as_learnt(latent, posterior[latent.name].attrs) for latent in problem.latents)
    return replace(problem, latents=latents, noise=replace(problem.noise, std=noise, learn={}))


def _as_learnt(latent: Latent, attributes: Mapping[str, Any]) -> Latent:
    """The latent with the prior that the posterior found, held fixed."""
    if not latent.learn:
        return latent
    process_mean, _ = latent.link.gaussian(latent.mean, latent.std)
    mean, std = latent.link.configured(process_mean, np.atleast_1d(attributes["process_std"]))
    return replace(latent, mean=mean, std=std, length_scale=np.atleast_1d(attributes["length_scale"]), learn={})


def _labels(posterior: xr.Dataset, name: str) -> int:
    return int(posterior[name].size // posterior.sizes["site"])


def check_outputs(output: Path | None, plot: Path, posterior: Path, problem: Problem, config: Path) -> None:
    """Whether the results can be written, looked at before the simulator is paid for."""
    from invgp.plots import check_format  # noqa: PLC0415 - help is given without waiting for matplotlib

    if output is not None:
        check_posterior_path(output, "--output", problem, config)
        if output.absolute() == posterior.absolute():
            raise ConfigError(f"--output: must be a file of its own, was {str(output)!r}, which is the posterior")
    check_format(plot, "--plot")
    check_writable(plot, "--plot")
    check_writable(chains_of(posterior, emulator=False), "POSTERIOR")


def chains_of(posterior: Path, *, emulator: bool) -> Path:
    """The file that keeps the draws."""
    return posterior.with_suffix(".emulated_chains.npz" if emulator else ".chains.npz")


def check_emulator(problem: Problem) -> None:
    """Whether there can be an emulator."""
    from invgp.inference.design import worth_emulating  # noqa: PLC0415 - it waits for SciPy

    if not worth_emulating(problem):
        raise ConfigError(
            "--emulator: inference.runs_per_site must allow more runs for an emulator of this survey, "
            f"was {problem.inference.runs_per_site}"
        )


def compared(
    problem: Problem,
    posterior: xr.Dataset,
    checkpoint: Path,
    ledger: Path | None,
    workers: int | None,
    scheduler: str | None,
    settings: dict[str, int],
    *,
    emulator: bool,
) -> tuple[xr.Dataset, int]:
    """The posterior beside draws, and the runs made now; if interrupted, all is kept, and the command ends."""
    # Here, not above: a mistake is told, and help given, without waiting for SciPy.
    try:
        from invgp.inference.comparison import compare  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`invgp compare` needs {error.name}, which is not installed: pip install arviz-stats"
        ) from error
    from invgp.inference.invert import recorded  # noqa: PLC0415
    from invgp.inference.pools import open_pool  # noqa: PLC0415
    from invgp.inference.reference import Direct, emulated_reference, reference  # noqa: PLC0415
    from invgp.inference.simulator import own_directory  # noqa: PLC0415

    # Batch systems ask a job to end by SIGTERM, a closed terminal by SIGHUP: as Ctrl-C, they keep what there is.
    for asked_to_end in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(asked_to_end) is not signal.SIG_IGN:  # as under nohup
            signal.signal(asked_to_end, signal.default_int_handler)
    runs = checkpoint.with_suffix("").with_suffix(".runs")
    try:
        with (
            open_pool(problem.inference, workers=workers, scheduler=scheduler) as pool,
            own_directory(runs) as directory,
            recorded(problem, ledger) as recorder,
            progress() as tally,
        ):
            run = Direct.of(problem, directory, pool, tally, recorder)
            find = emulated_reference if emulator else reference
            try:
                chains = find(problem, run, checkpoint=checkpoint, told=tally.told, **settings)
            except RunsFailedError as failure:
                raise RunsFailedError(run.simulator.failures(str(failure))) from failure
    except KeyboardInterrupt:
        note(f"interrupted {kept(tally, checkpoint, ledger)}")
        raise SystemExit(INTERRUPTED) from None
    finally:
        remove_if_empty(runs)
    comparison = compare(problem, posterior, chains)
    made = settings | {"draws": chains.draws.shape[1]}
    comparison.attrs |= {f"invgp_reference_{name}": value for name, value in made.items()}
    return comparison, run.simulator.runs - run.simulator.answered


def kept(tally: Tally, checkpoint: Path, ledger: Path | None) -> str:
    """What there is, and how to go on."""
    spent = counted(tally.runs, "run")
    if not checkpoint.exists():
        held = ledger is not None and holds_runs(ledger)
        what = f"the runs are kept in {ledger}, and the same command goes on from there" if held else "nothing was kept"
        return f"after {spent}, before the chains had started; {what}"
    return f"after {spent}; the chains are kept in {checkpoint}, and the same command goes on from there"


@dataclass
class Tally:
    """How far the chains are; a monitor of the simulator as well.

    Attributes
    ----------
    runs : made now; what a ledger answers is none.
    first, began : where the chains stood when they began, or went on, and when.
    """

    runs: int = 0
    failed: int = 0
    done: int = 0
    goal: int = 0
    first: int | None = None
    began: float = 0.0
    started: float = field(default_factory=time.perf_counter)

    def begin(self, most_runs: int) -> None:
        """Nothing: the chains say how much there is to do."""

    def batch(self, purpose: str, runs: int) -> None:
        """Nothing: batches are small."""

    def waiting(self, runs: int, maker: str) -> None:
        """Nothing: the line is full."""

    def evaluated(self, elbo: float, *, accepted: bool) -> None:
        """Nothing: there is no bound."""

    def ran(self, succeeded: int, failed: int, *, answered: int = 0) -> None:
        """Count runs."""
        self.runs += succeeded + failed - answered
        self.failed += failed

    def told(self, done: int, goal: int) -> None:
        """Count iterations."""
        if self.first is None:
            self.first, self.began = done, time.perf_counter()
        self.done, self.goal = done, goal

    @property
    def text(self) -> str:
        """Where the chains are."""
        now = time.perf_counter()
        seconds = max(now - self.started, 1e-9)
        spent = f"{counted(self.runs, 'run')}, {self.failed:,} failed | {rate(self.runs / seconds)}"
        if not self.goal:
            return f"fitting a Gaussian | {spent}"
        gone = self.done - (self.first or 0)
        left = duration((self.goal - self.done) * (now - self.began) / gone) if gone else "-"
        return f"iteration {self.done:,} of {self.goal:,} | {spent} | about {left} left"


class Lines(Tally):
    """A plain line now and then."""

    last: float = 0.0

    def ran(self, succeeded: int, failed: int, *, answered: int = 0) -> None:
        """Count and say."""
        super().ran(succeeded, failed, answered=answered)
        if time.perf_counter() - max(self.last, self.started) > SECONDS_BETWEEN_LINES:
            self.last = time.perf_counter()
            click.echo(self.text, err=True)


class Live(Tally):
    """A line that is drawn again and again."""

    def __rich__(self) -> str:
        return f"[bold cyan]sampling[/] {self.text}"


@contextmanager
def progress() -> Iterator[Tally]:
    """The display that fits where standard error goes."""
    if voice().quiet:
        yield Tally()
        return
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live as Display  # noqa: PLC0415

    live = Live()
    with Display(live, console=Console(stderr=True, highlight=False), refresh_per_second=8, transient=True):
        yield live


def draw(posterior: xr.Dataset, comparison: xr.Dataset, path: Path) -> None:
    """The figure."""
    from invgp import plots  # noqa: PLC0415

    plots.save(plots.comparison(posterior, comparison), path)


def facts(comparison: xr.Dataset) -> dict[str, Any]:
    """What `tell` says, for a machine."""
    from invgp.inference.comparison import converged, rows, verdict  # noqa: PLC0415

    attributes = comparison.attrs
    return {
        "latents": [row._asdict() for row in rows(comparison)],
        "converged": converged(comparison),
        "verdict": verdict(comparison),
        "runs": attributes["invgp_runs"],
        "reference_runs": attributes["invgp_reference_runs"],
        "reference_chains": attributes["invgp_reference_chains"],
        "reference_draws": attributes["invgp_reference_draws"],
    }


def tell(comparison: xr.Dataset, made: int, seconds: float) -> None:
    """The table, what both took, and whether the reference is one."""
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from invgp.inference.comparison import converged, rows, verdict  # noqa: PLC0415

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("error of mean", "± sampler's", "ratio of spreads", "± sampler's", "R-hat", "effective"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows(comparison):
        name = f"{row.latent}, {row.label}" if row.label else row.latent
        errors = f"{row.error:.3f}", f"{row.error_mcse:.3f}", f"{row.ratio:.3f}", f"{row.ratio_mcse:.3f}"
        table.add_row(name, *errors, f"{row.r_hat:.3f}", f"{row.ess:,.0f}")
    if speaks():
        Console(highlight=False, width=None if sys.stdout.isatty() else PAPER).print(table)
    attributes: dict[str, Any] = comparison.attrs
    say(
        "Error of the posterior mean in standard deviations of the reference, root mean square over the sites; "
        "posterior spread\nover that of the reference, median over the sites; each with the Monte Carlo error of the "
        "reference; worst R-hat and\neffective sample size over the sites."
    )
    say(
        f"Runs: posterior {attributes['invgp_runs']:,}; reference {attributes['invgp_reference_runs']:,} "
        f"({attributes['invgp_reference_chains']} chains of {attributes['invgp_reference_draws']:,} draws, "
        f"{counted(made, 'run')} and {duration(seconds)} now)."
    )
    if converged(comparison):
        say(f"Reference: {verdict(comparison)}.")
    else:
        warn(
            f"{verdict(comparison)}; more --draws go on from here; if they do not help, "
            "remove the file of the chains and give them a longer --burn-in"
        )
