"""Inputs and outputs of the simulator, with their names in the problem and unit conversions."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.problem.survey import Floats
from invgp.units import IDENTITY, Conversion


@dataclass(frozen=True)
class SimulatorVariable:
    """An input or an output of the simulator.

    Parameters
    ----------
    name : str
        Name of the latent, covariate or coordinate (for an input) or of the observation (for an output).
    conversion : Conversion
        For an input, from the unit of the problem to that of the simulator; for an output, the other way round.
    """

    name: str
    conversion: Conversion = IDENTITY

    def convert(self, values: Floats) -> Floats:
        """Return values in the target unit of the conversion.

        Parameters
        ----------
        values : array
            Values in the source unit of the conversion.

        Returns
        -------
        array, same shape
        """
        return values * self.conversion.factor + self.conversion.offset

    def convert_back(self, values: Floats) -> Floats:
        """Return values in the source unit of the conversion: the inverse of `convert`.

        Parameters
        ----------
        values : array
            Values in the target unit of the conversion.

        Returns
        -------
        array, same shape
        """
        return (values - self.conversion.offset) / self.conversion.factor
