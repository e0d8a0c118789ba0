"""Exceptions for problems that the user or the simulator causes; each message is a sentence.

The messages name Python arguments and keys of the configuration. The command line replaces arguments by its options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar


class InvgpError(Exception):
    """A problem that the user can solve; the message states which and how.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line.
    """

    exit_code = 1

    @property
    def sentences(self) -> tuple[str, ...]:
        """The messages, one per problem."""
        return (str(self),)


class ConfigError(InvgpError):
    """A configuration, an argument or an input file is not valid.

    Parameters
    ----------
    sentences : str or sequence of str
        One sentence per problem, such as ``"noise.std.time: must be positive, was -1"``.
    """

    exit_code = 2

    def __init__(self, sentences: str | Sequence[str]) -> None:
        self._sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self._sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The messages, one per problem."""
        return self._sentences

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self._sentences,)


class ArgumentError(ConfigError):
    """An argument of a function is not valid; each sentence starts with its name, as in ``"grid: must be a step"``."""


class PlotError(InvgpError, ValueError):
    """A dataset cannot be plotted as requested."""

    exit_code = 2


class WriteError(InvgpError):
    """A result could not be written."""

    exit_code = 1


class SystemLimitError(InvgpError):
    """A limit of the machine, such as that of open files, is too low."""

    exit_code = 1


class LedgerError(InvgpError):
    """A run ledger cannot be read or written; the runs that it contains are not lost.

    Parameters
    ----------
    path : path-like
        The ledger.
    reason : str
    """

    exit_code = 1

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"the ledger {str(path)!r} cannot be read or written: {reason}; no run that it holds is lost, and the "
            "same command resumes from it once this is solved"
        )
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[LedgerError], tuple[object, str]]:
        return LedgerError, (self.path, self.reason)  # it may be raised in a worker process


class RunsFailedError(InvgpError):
    """Too many simulator runs failed.

    Attributes
    ----------
    posterior : xarray.Dataset or None
        Best posterior so far, as from `invgp.invert`; None if there is none.
    """

    exit_code = 3
    posterior: Any = None


class DeviceMissingError(InvgpError):
    """The requested device is not available."""

    exit_code = 4


class PriorConflictError(InvgpError):
    """The data are far outside everything that the simulator computes under the prior.

    Parameters
    ----------
    sentences : sequence of str
        One sentence per observation.
    """

    exit_code = 6

    def __init__(self, sentences: Sequence[str]) -> None:
        self._sentences = tuple(sentences)
        super().__init__("\n".join(self._sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The messages, one per observation."""
        return self._sentences

    def __reduce__(self) -> tuple[type[PriorConflictError], tuple[tuple[str, ...]]]:
        return type(self), (self._sentences,)


def replace_arguments(sentence: str, names: Mapping[str, str]) -> str:
    """Replace arguments at the start and in backticks of a message.

    Parameters
    ----------
    sentence : str
    names : mapping of str to str
        New name of each argument.

    Examples
    --------
    >>> replace_arguments("draws: must fit in memory; try another `seed`", {"draws": "--draws", "seed": "--seed"})
    '--draws: must fit in memory; try another --seed'
    """
    argument, colon, rest = sentence.partition(":")
    start = ", ".join(names.get(name, name) for name in argument.split(", ")) if colon else argument
    return start + colon + re.sub(r"`(\w+)`", lambda found: names.get(found[1], found[0]), rest)


S = TypeVar("S")
T = TypeVar("T")


class Mistakes:
    """Messages about parts of a configuration that do not depend on each other."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def collect(self, make: Callable[[], T]) -> T | None:
        """Return the result of a function; if it raises `ConfigError`, keep its messages and return None."""
        try:
            return make()
        except ConfigError as error:
            self.sentences += error.sentences
            return None

    def raise_all(self) -> None:
        """Raise `ConfigError` with all messages, each once, if there are any."""
        if self.sentences:
            raise ConfigError(list(dict.fromkeys(self.sentences)))


def build_each(make: Callable[[S], T], items: Iterable[S]) -> tuple[T, ...]:
    """Return the result for each item; raise `ConfigError` with the mistakes of all items, if there are any."""
    sentences: list[str] = []
    made: list[T] = []
    for item in items:
        try:
            made.append(make(item))
        except ConfigError as error:
            sentences += error.sentences
    if sentences:
        raise ConfigError(list(dict.fromkeys(sentences)))
    return tuple(made)
