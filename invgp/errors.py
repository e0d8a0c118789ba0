"""Errors that are a person's or a simulator's, not ours: each is a sentence, and each has an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class InvgpError(Exception):
    """Something the user can mend; its text says what and how."""

    exit_code = 1


class ConfigError(InvgpError):
    """A config, or a file that it names, that cannot be used. One sentence for each thing that is wrong."""

    exit_code = 2

    def __init__(self, sentences: str | Sequence[str]) -> None:
        self.sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self.sentences))


class PlotError(InvgpError, ValueError):
    """A dataset that cannot be drawn as asked."""

    exit_code = 2


class WriteError(InvgpError):
    """A result that could not be written."""

    exit_code = 1


class SystemLimitError(InvgpError):
    """A limit of the machine, such as that of open files, that is too low to start."""

    exit_code = 1


class LedgerError(InvgpError):
    """A run ledger that cannot be read or written now; what it holds is not lost."""

    exit_code = 1

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"the ledger {str(path)!r} cannot be read or written: {reason}; no run that it holds is lost, and "
            "once this is mended the same command goes on from there"
        )
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[type[LedgerError], tuple[object, str]]:
        return LedgerError, (self.path, self.reason)  # a worker may be the one who finds out


class RunsFailedError(InvgpError):
    """Too many simulator runs failed for the inference to go on.

    Attributes
    ----------
    posterior : the best posterior so far, an xarray.Dataset as `invgp.invert` returns it; None if there is none.
    """

    exit_code = 3
    posterior: Any = None


class DeviceMissingError(InvgpError):
    """The device asked for is not on this machine."""

    exit_code = 4
