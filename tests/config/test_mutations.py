"""Configs and surveys with faults of every kind: each is refused in sentences, or used; nothing else escapes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from campaign.mutate_config import damaged_projects
from invgp.api.output_paths import check_posterior_path
from invgp.config import load
from invgp.errors import ConfigError

COUNT, SEED = 150, 20260101  # `PYTHONPATH=tests python tests/config/test_mutations.py 1500 7` tries more


def outcomes(root: Path, directory: Path, count: int, seed: int) -> dict[str, int]:
    """How many projects were used, and how many were refused."""
    found = {"used": 0, "refused": 0}
    for what, config in damaged_projects(root, directory, count, seed):
        sentences: tuple[str, ...] = ()
        try:
            problem = load(config)
            check_posterior_path(problem.output.file, "output.file", problem, config)
        except ConfigError as error:
            sentences = error.sentences
        except Exception as error:
            raise AssertionError(what) from error
        assert not any("\n" in sentence for sentence in sentences), what
        found["refused" if sentences else "used"] += 1
    return found


def test_that_projects_with_faults_are_rejected_with_a_message_or_used(root: Path, tmp_path: Path) -> None:
    found = outcomes(root, tmp_path, COUNT, SEED)
    assert sum(found.values()) == COUNT
    assert min(found.values()) > 0


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_that_a_config_or_survey_that_might_never_end_is_refused(kind: str, root: Path, tmp_path: Path) -> None:
    _, config = next(damaged_projects(root, tmp_path, 1, SEED))
    for file in (config, config.parent / "sites.csv"):
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="cannot be read: it must be a regular file"):
        load(config)
    config.unlink()
    config.write_text((root / "invgp/scaffolds/python-project/survey.toml").read_text())
    with pytest.raises(ConfigError, match=r"'.*sites.csv', which is not a regular file"):
        load(config)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "it is nested too deeply"),
        ("a = " + "[" * 40 + "]" * 40, "must not be nested more than 32 levels deep"),
        (".".join("a" * 40) + " = 1", "must not be nested more than 32 levels deep"),
        (f"a = 1{'0' * 5000}", "is not TOML: Exceeds the limit"),
        ("#" * 2**24 + "#", "it must have at most 16 MiB"),
    ],
    ids=["deep list", "list", "keys", "digits", "size"],
)
def test_that_toml_without_measure_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        load(tmp_path / "survey.toml")


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as place:
        print(outcomes(Path(__file__).resolve().parents[2], Path(place), int(sys.argv[1]), int(sys.argv[2])))
