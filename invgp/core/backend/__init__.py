"""The few bridges between the array API standard and the libraries behind it (NumPy, CuPy).

Everything else in `invgp.core` is written against the standard, through `array_namespace`.
"""

from array_api_compat import device as device_of

from invgp.core.backend.elementwise import (
    at_least_zero,
    exponential,
    identity,
    logarithm,
    stacked,
    zero_where,
    zeros_like,
)
from invgp.core.backend.factors import cholesky, lower_inverse, solve_triangular
from invgp.core.backend.places import Array, DeviceError, Place, array_namespace, place, place_of, to_numpy
from invgp.core.backend.products import (
    add_weighted_gram,
    combined_columns,
    combined_rows,
    product,
    sum_of_products,
    sum_of_squares,
)
from invgp.core.backend.triangles import (
    lower_outer_product,
    lower_product,
    symmetric,
    transposed_times,
    tril,
    tril_with_diagonal,
)

__all__ = [
    "Array",
    "DeviceError",
    "Place",
    "add_weighted_gram",
    "array_namespace",
    "at_least_zero",
    "cholesky",
    "combined_columns",
    "combined_rows",
    "device_of",
    "exponential",
    "identity",
    "logarithm",
    "lower_inverse",
    "lower_outer_product",
    "lower_product",
    "place",
    "place_of",
    "product",
    "solve_triangular",
    "stacked",
    "sum_of_products",
    "sum_of_squares",
    "symmetric",
    "to_numpy",
    "transposed_times",
    "tril",
    "tril_with_diagonal",
    "zero_where",
    "zeros_like",
]
