"""A number in a field of fixed width, with as many digits as fit."""

from __future__ import annotations

import math
from collections.abc import Iterator

_DIGITS = 17  # of a float, at the most
_LARGEST = 1e16  # written without an exponent
_ONE_DIGIT = 0.5  # relative error beyond which not even the first digit is right


def fit(number: float, width: int) -> str | None:
    """Write `number` in at most `width` characters; None if they do not hold one digit of it.

    A finite number has a decimal point, lest a Fortran program that reads ``F10.3`` put one in. Of all texts that fit,
    the nearest to the number is taken, of those one with a digit before the point, and of those the shortest.
    """
    if not math.isfinite(number):
        text = repr(number)
        return text if len(text) <= width else None
    if number == 0.0:
        return "0.0" if width >= 3 else None
    fitting = [text for text in _texts(number) if len(text) <= width]
    # Some readers want a digit before the point.
    best = min(
        fitting, key=lambda text: (abs(float(text) - number), text.lstrip("-")[0] == ".", len(text)), default=None
    )
    if best is None or abs(float(best) - number) > _ONE_DIGIT * abs(number):
        return None
    return best


def _texts(number: float) -> Iterator[str]:
    for digits in range(_DIGITS):
        mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
        scaled = f"{_pointed(mantissa)}e{int(exponent)}"
        yield from _shorter(scaled)
    if abs(number) < _LARGEST:
        for digits in range(_DIGITS + 1):
            yield from _shorter(_pointed(f"{number:.{digits}f}"))
    yield _pointed_anywhere(repr(number))


def _pointed(text: str) -> str:
    return text if "." in text else f"{text}."


def _pointed_anywhere(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return f"{_pointed(mantissa)}{e}{exponent}"


def _shorter(text: str) -> Iterator[str]:
    """Give the text, and the same without a zero before the point."""
    yield text
    if text.startswith(("0.", "-0.")) and text not in ("0.", "-0."):
        yield text.replace("0.", ".", 1)
