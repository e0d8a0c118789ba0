"""Jacobians of UM-Bridge models, from their products with unit vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .protocol import Floats, Quantity
from .quantities import size_of

GRADIENT, APPLY = "Gradient", "ApplyJacobian"


@dataclass(frozen=True)
class JacobianProduct:
    """A request for a product of one block of the Jacobian with a unit vector, and the place of the reply.

    Parameters
    ----------
    fields : dict
        What the request contains besides name, inputs and configuration.
    rows, columns : slice
        Place of the numbers of the reply in the Jacobian.
    size : int
        Length of the reply.
    """

    fields: dict[str, Any]
    rows: slice
    columns: slice
    size: int


def choose_endpoint(support: Mapping[str, Any], inputs: Sequence[Quantity], outputs: Sequence[Quantity]) -> str:
    """Return the endpoint that gives the Jacobian in fewest requests; empty if the model supports none."""
    requests = {GRADIENT: size_of(outputs) * len(inputs), APPLY: size_of(inputs) * len(outputs)}
    supported = [name for name in requests if support.get(name) is True]
    return min(supported, key=lambda name: requests[name], default="")


def jacobian_products(
    endpoint: str, inputs: Sequence[Quantity], outputs: Sequence[Quantity]
) -> Iterator[JacobianProduct]:
    """Yield the products that make up the Jacobian (P, I).

    ``Gradient`` multiplies a vector of the size of an output block by the transposed Jacobian, so that a unit vector
    gives a row; with ``ApplyJacobian`` and a vector of the size of an input block, it gives a column.
    """
    for o, rows in enumerate(_slices(outputs)):
        for i, columns in enumerate(_slices(inputs)):
            block = {"outWrt": o, "inWrt": i}
            for place, unit in enumerate(np.eye(outputs[o].size if endpoint == GRADIENT else inputs[i].size).tolist()):
                if endpoint == GRADIENT:
                    row = slice(rows.start + place, rows.start + place + 1)
                    yield JacobianProduct({**block, "sens": unit}, row, columns, inputs[i].size)
                else:
                    column = slice(columns.start + place, columns.start + place + 1)
                    yield JacobianProduct({**block, "vec": unit}, rows, column, outputs[o].size)


def place_product(jacobian: Floats, product: JacobianProduct, numbers: Floats) -> None:
    """Write the numbers of a reply into a Jacobian (P, I)."""
    jacobian[product.rows, product.columns] = numbers.reshape(jacobian[product.rows, product.columns].shape)


def _slices(quantities: Sequence[Quantity]) -> list[slice]:
    ends = np.cumsum([0, *(q.size for q in quantities)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
