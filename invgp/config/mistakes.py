"""Several mistakes at once: a person mends them all before the next try."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from invgp.errors import ConfigError

S = TypeVar("S")
T = TypeVar("T")


class Mistakes:
    """Sentences of parts that do not depend on each other."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def of(self, make: Callable[[], T]) -> T | None:
        """What is made, or None, with the sentences that say why."""
        try:
            return make()
        except ConfigError as error:
            self.sentences += error.sentences
            return None

    def tell(self) -> None:
        """Raise all of them, each once, if there are any."""
        if self.sentences:
            raise ConfigError(list(dict.fromkeys(self.sentences)))


def each(make: Callable[[S], T], items: Iterable[S]) -> tuple[T, ...]:
    """What is made of each item; the mistakes of all of them, if there are any."""
    mistakes, made = Mistakes(), []
    for item in items:
        found = mistakes.of(lambda item=item: make(item))  # type: ignore[misc]
        if found is not None:
            made.append(found)
    mistakes.tell()
    return tuple(made)
