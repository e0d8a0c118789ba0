"""Numbers in fields of fixed width, with as many digits as possible."""

from __future__ import annotations

import math
from collections.abc import Iterator

_DIGITS = 17  # most digits of a float
_LARGEST = 1e16  # written without an exponent
_ONE_DIGIT = 0.5  # relative error beyond which not even the first digit is right


def fit_number(number: float, width: int) -> str | None:
    """Write a number in a field of fixed width.

    A finite number has a decimal point, because a Fortran program that reads ``F10.3`` would insert one. Of all texts
    that fit, the nearest to the number is used, of those one with a digit before the point, and of those the shortest.

    Parameters
    ----------
    number : float
    width : int
        Width of the field in characters.

    Returns
    -------
    str or None
        None if not even one digit fits.
    """
    if not math.isfinite(number):
        text = repr(number)
        return text if len(text) <= width else None
    if number == 0.0:
        return "0.0" if width >= 3 else None
    fitting = [text for text in _write_texts(number) if len(text) <= width]
    # Some programs require a digit before the point.
    best = min(
        fitting, key=lambda text: (abs(float(text) - number), text.lstrip("-")[0] == ".", len(text)), default=None
    )
    if best is None or abs(float(best) - number) > _ONE_DIGIT * abs(number):
        return None
    return best


def _write_texts(number: float) -> Iterator[str]:
    for digits in range(_DIGITS):
        mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
        scaled = f"{_add_point(mantissa)}e{int(exponent)}"
        yield from _drop_zero(scaled)
    if abs(number) < _LARGEST:
        for digits in range(_DIGITS + 1):
            yield from _drop_zero(_add_point(f"{number:.{digits}f}"))
    yield _add_point_to_mantissa(repr(number))


def _add_point(text: str) -> str:
    return text if "." in text else f"{text}."


def _add_point_to_mantissa(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return f"{_add_point(mantissa)}{e}{exponent}"


def _drop_zero(text: str) -> Iterator[str]:
    """Yield the text, and the text without a zero before the point."""
    yield text
    if text.startswith(("0.", "-0.")) and text not in ("0.", "-0."):
        yield text.replace("0.", ".", 1)
