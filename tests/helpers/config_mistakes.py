"""Edits to the config of the fixture, and the sentences that they must give."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from invgp.config import load
from invgp.errors import ConfigError


class Case(NamedTuple):
    """Edits to the config of the fixture, and the sentence that they give; ``<here>`` is the config's folder."""

    mistake: str
    config: dict[str, str]
    sentence: str


def sentence_of(path: Path, data: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, data=data)
    return str(caught.value).replace(str(path.parent), "<here>")


def by_mistake(*tables: list[Case]) -> pytest.MarkDecorator:
    cases = [case for table in tables for case in table]
    return pytest.mark.parametrize("case", cases, ids=[case.mistake for case in cases])
