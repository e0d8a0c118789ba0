"""Collection of several mistakes, so that all are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from invgp.errors import ConfigError

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
    mistakes, made = Mistakes(), []
    for item in items:
        found = mistakes.collect(lambda item=item: make(item))  # type: ignore[misc]
        if found is not None:
            made.append(found)
    mistakes.raise_all()
    return tuple(made)
