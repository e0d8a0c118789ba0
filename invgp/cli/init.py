"""`invgp init`: an example project, or a configuration for a survey."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from invgp.cli.console import json_option, print_json, print_line, print_warning
from invgp.cli.options import FilePath
from invgp.errors import ConfigError
from invgp.scaffolds import KINDS, read_template, write_project

STARTED_FIRST = {"umbridge": "python3 server.py          # in a terminal of its own"}


def complete_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Return the kinds that the shell suggests."""
    return [CompletionItem(kind, help=words) for kind, words in KINDS.items() if kind.startswith(incomplete)]


@click.command(
    epilog="Examples: invgp init; invgp init executable soundings; invgp init --from-data sites.csv; "
    "invgp init --from-data lines/north.csv north; invgp init --from-pest case.pst"
)
@click.argument("kind", metavar="[KIND]", required=False, shell_complete=complete_kind)
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--from-data", "data", type=FilePath(), help="Survey file whose columns the configuration describes.")
@click.option("--from-pest", "control", type=FilePath(), help="PEST control file from which the project is created.")
@click.option(
    "--coordinates", type=FilePath(), help="With --from-pest: table with name, x and y of parameters that are a field."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    kind: str | None,
    directory: Path | None,
    data: Path | None,
    control: Path | None,
    coordinates: Path | None,
) -> None:
    """Write an example project to DIRECTORY, by default the current one. Nothing is overwritten.

    KIND is the type of the simulator: a Python function (python, the default) or a program (executable) that computes
    the data of one site, the same for a whole grid (field, field-program), a function of a few unknown numbers
    (scalars), a PEST case (pest) or a model on a server (umbridge). The project runs without changes. With --from-data,
    the command writes a configuration for your survey file and a template of a Python function that you complete. With
    --from-pest, it writes a configuration that runs your PEST case: parameters with their priors, observations with
    their noise, and a list that states how every other feature of the control file is used.
    """
    if data is not None and control is not None:
        ctx.fail("--from-data: must be left out with --from-pest")
    if coordinates is not None and control is None:
        ctx.fail("--coordinates: must go with --from-pest")
    if control is not None:
        if directory is not None:
            ctx.fail(f"KIND: must be left out with --from-pest, was {kind!r}")
        create_from_pest(control, Path(kind or "."), coordinates)
        return
    if data is not None and kind is not None and kind not in KINDS and directory is None:
        directory, kind = Path(kind), None
    kind, directory = kind or "python", directory or Path()
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; for a directory of that name: invgp init python {kind}"
        ctx.fail(f"KIND: must be {', '.join(KINDS)}, was {kind!r}{hint}")
    if data is not None and kind != "python":
        ctx.fail(f"--from-data: must go with the kind 'python', was {kind!r}")
    contents = read_template(kind) if data is None else files_from_data(data, directory)
    files = write_project(contents, directory)
    for path in files:
        print_line(path)
    if data is not None:
        warn_about_survey(directory / "survey.toml")
    print_next_steps(kind, directory, edit=data is not None)
    print_json({"kind": kind, "directory": directory, "files": files})


def create_from_pest(control: Path, directory: Path, coordinates: Path | None) -> None:
    """Write a project for a PEST case, and print how each feature of its control file is used."""
    from invgp.scaffolds.pest_case import project_from_pest  # noqa: PLC0415

    project = project_from_pest(control, directory, coordinates)
    files = write_project(project.contents, directory)
    for path in files:
        print_line(path)
    print_line(f"\nWhat became of {control.name}:")
    for feature, fate in project.features:
        print_line(f"  {feature}: {fate}")
    warn_about_survey(directory / "survey.toml")
    print_next_steps("pest", directory, edit=False)
    notes = [{"feature": feature, "fate": fate} for feature, fate in project.features]
    print_json({"kind": "pest", "directory": directory, "files": files, "features": notes})


def files_from_data(data: Path, directory: Path) -> dict[str, bytes]:
    """Return a configuration and the beginning of a simulator for a survey file."""
    # Here, not above: help is given without waiting for xarray.
    from invgp.config.survey_tables import read_table  # noqa: PLC0415
    from invgp.scaffolds.column_roles import guess_roles  # noqa: PLC0415
    from invgp.scaffolds.config_text import SIMULATOR, config_text  # noqa: PLC0415

    roles = guess_roles(read_table(data, None, "--from-data"), "--from-data")
    for sentence in roles.faults:
        print_warning(f"{sentence}; the column is not used")
    text = config_text(roles, os.path.relpath(data, directory), data.stem)
    return {"survey.toml": text.encode(), "simulator.py": SIMULATOR.encode()}


def warn_about_survey(config: Path) -> None:
    """Warn about problems of the survey, such as a missing coordinate."""
    from invgp.config import load  # noqa: PLC0415

    try:
        load(config)
    except ConfigError as error:
        for sentence in error.sentences:
            print_warning(sentence)


def print_next_steps(kind: str, directory: Path, *, edit: bool) -> None:
    """Print the next commands."""
    print_line("\nNext:")
    if directory != Path():
        print_line(f"  cd {directory}")
    if edit:
        print_line("  (edit survey.toml where it says EDIT, and simulator.py)")
    elif kind in STARTED_FIRST:
        print_line(f"  {STARTED_FIRST[kind]}")
    print_line("  invgp check survey.toml\n  invgp run survey.toml\n  invgp plot posterior.nc")
