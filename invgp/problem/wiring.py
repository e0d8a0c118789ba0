"""Between the names and units of a problem and those of its simulator."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.problem.survey import Floats
from invgp.units import IDENTITY, Conversion


@dataclass(frozen=True)
class Wire:
    """One end of the wiring between the problem's names and units and the simulator's.

    Parameters
    ----------
    name : of the latent, covariate, coordinate or observation.
    conversion : into the unit of the destination: the simulator's for an input, the observation's for an output.
    """

    name: str
    conversion: Conversion = IDENTITY

    def converted(self, values: Floats) -> Floats:
        """In the unit of the destination."""
        return values * self.conversion.factor + self.conversion.offset

    def back(self, values: Floats) -> Floats:
        """The inverse of `converted`."""
        return (values - self.conversion.offset) / self.conversion.factor
