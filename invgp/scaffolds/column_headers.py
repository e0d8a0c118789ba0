"""Headers of columns: name, number and unit."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from invgp.units import is_unit

# Common units at the end of a header, in the notation of UDUNITS. Others, such as `t`, are often names.
_SUFFIXES = {
    "m": "m",
    "km": "km",
    "cm": "cm",
    "mm": "mm",
    "ft": "ft",
    "s": "s",
    "ms": "ms",
    "us": "us",
    "hz": "Hz",
    "khz": "kHz",
    "deg": "degrees",
    "degc": "degC",
    "mgal": "mGal",
    "ugal": "uGal",
    "nt": "nT",
    "mv": "mV",
    "ohmm": "ohm m",
    "ohm_m": "ohm m",
    "ohm.m": "ohm m",
    "ohm-m": "ohm m",
    "m_s": "m s-1",
    "km_s": "km s-1",
    "m/s": "m s-1",
    "km/s": "km s-1",
    "pct": "percent",
}
_BRACKETS = re.compile(r"^(?P<stem>.*?)[\s_]*[(\[](?P<unit>[^()\[\]]+)[)\]]\s*$")
_NUMBER = re.compile(r"^(?P<stem>.*?)[\s_\-]*(?P<number>\d+)$")


@dataclass(frozen=True)
class Header:
    """The parts of the header of a column.

    Attributes
    ----------
    column : str
        The complete header.
    name : str
        Name of letters, digits and underscores, without unit and number.
    number : int or None
        Number at the end, such as that of a layer.
    unit : str
        Unit in the notation of UDUNITS; empty if the header has none.
    """

    column: str
    name: str
    number: int | None
    unit: str


def parse_header(column: str) -> Header:
    """Split a header into name, number and unit.

    Parameters
    ----------
    column : str

    Returns
    -------
    Header

    Examples
    --------
    >>> parse_header("twt_1_ms")
    Header(column='twt_1_ms', name='twt', number=1, unit='ms')
    """
    stem, unit = _split_unit(column)
    found = _NUMBER.match(stem)
    if found and found["stem"]:
        return Header(column, identifier(found["stem"]), int(found["number"]), unit)
    return Header(column, identifier(stem), None, unit)


def _split_unit(column: str) -> tuple[str, str]:
    bracketed = _BRACKETS.match(column)
    if bracketed and bracketed["stem"]:
        text = bracketed["unit"].strip().replace("Ω", "ohm").replace("µ", "u").replace("°", "degrees")
        unit = _SUFFIXES.get(text.lower(), text)
        return bracketed["stem"], unit if is_unit(unit) else ""
    words = re.split(r"[\s_]+", column)
    for count in (2, 1):
        suffix = "_".join(words[-count:]).lower()
        if len(words) > count and suffix in _SUFFIXES:
            return "_".join(words[:-count]), _SUFFIXES[suffix]
    return column, ""


def identifier(text: str) -> str:
    """Return a name that is valid in a configuration."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_").lower()
    return name if name[:1].isalpha() else f"column_{name}".rstrip("_")
