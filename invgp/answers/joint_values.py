"""Joint draws of the latents of a posterior at any places, and quantities of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError
from invgp.maps.grids import MapGrid
from invgp.maps.joint_draws import DrawMethods, JointDraws
from invgp.maps.map_quantities import DerivedQuantity, expression_latents, parse_threshold
from invgp.maps.posterior_field import PosteriorField
from invgp.maps.process_prior import LatentField
from invgp.problem import Floats
from invgp.problem.expressions import DerivedExpression, ExpressionLatent, parse_quantity

GAUSSIAN_DRAWS = 4000  # of a posterior without draws
MOST_DRAWS = 4000
MOST_NUMBERS = 4e7  # of the draws of all processes at all places, to limit memory
PLACES_AT_ONCE = 500


def draw_jointly(field: PosteriorField, X: Floats, seed: int) -> Floats:
    """Return joint posterior draws (R, B, Q) of the processes, the arguments of the links, at places X (B, D).

    All draws in the file are used, up to a limit of memory. A Gaussian posterior is drawn anew.
    """
    most = max(int(MOST_NUMBERS / (len(X) * field.process_count)), 100)
    count = min(field.draw_count or GAUSSIAN_DRAWS, MOST_DRAWS, most)
    field = field.thin(count, seed)
    grid = MapGrid(("place",) * X.shape[1], None, X, ("site",))
    rng = np.random.default_rng(seed)
    draws = JointDraws.sample(field, DrawMethods.choose(field, grid, count), count, rng)
    processes, parts = list(range(field.process_count)), []
    for start in range(0, len(X), PLACES_AT_ONCE):
        rows = np.arange(start, min(start + PLACES_AT_ONCE, len(X)))
        parts.append(draws.at(X[rows], rows, field.at(X[rows], processes)))
    return np.concatenate(parts, axis=1)


class Target(NamedTuple):
    """A quantity whose uncertainty is to be reduced.

    Attributes
    ----------
    text : str
        As the user wrote it.
    quantity : DerivedQuantity
        Expression of the latents.
    unit : str
        Unit of its standard deviation.
    threshold : float or None
        Value, in the unit of the quantity; the target is then whether the quantity exceeds it.
    """

    text: str
    quantity: DerivedQuantity
    unit: str
    threshold: float | None

    def values(self, f: Floats) -> Floats:
        """Return the values (R, K) of the quantity for draws (R, B, Q), at all places and labels."""
        return self.quantity.values(f).reshape(len(f), -1)


def parse_target(text: str, points: xr.Dataset, fields: Sequence[LatentField]) -> Target:
    """Parse a target such as ``depth[2] - depth[1]`` or ``depth > 900 m``.

    Raises
    ------
    ArgumentError
        It cannot be read, or names no latent of the posterior.
    """
    body, above, limit = text.partition(">")
    expression = parse_latent_expression(body, points, fields, "target")
    quantity = quantity_of(expression, fields)
    if not above:
        return Target(text.strip(), quantity, expression.unit, None)
    if re.search(r"[<>=]", limit):
        raise ArgumentError(f"target: must be 'expression' or 'expression > number unit', was {text!r}")
    try:
        value = parse_threshold(f"target > {limit}", {"target": expression.unit}).value
    except ArgumentError as error:
        raise ArgumentError(f"{error}".replace("exceed:", "target:")) from None
    return Target(text.strip(), quantity, "1", value)


def parse_latent_expression(
    text: str, points: xr.Dataset, fields: Sequence[LatentField], key: str
) -> DerivedExpression:
    """Parse an expression of the latents of a posterior; `key` is named in messages."""
    known: list[ExpressionLatent] = expression_latents(points, fields)
    return parse_quantity("target", text, "", known, key)


def quantity_of(expression: DerivedExpression, fields: Sequence[LatentField]) -> DerivedQuantity:
    """Return an expression as a function of draws of the processes of a posterior."""
    return DerivedQuantity(expression, tuple(own for own in fields if own.name in expression.latents))
