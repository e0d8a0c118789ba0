"""Functions that the array API standard lacks, for NumPy, CuPy and other libraries.

All other code of `invgp.core` uses only the standard, through `array_namespace`.
"""

from array_api_compat import device as device_of

from invgp.core.backend.devices import (
    Array,
    Backend,
    DeviceError,
    array_namespace,
    backend_of,
    select_backend,
    to_numpy,
)
from invgp.core.backend.elementwise import (
    clip_negative,
    exp_in_place,
    identity,
    log_in_place,
    sqrt_in_place,
    stack_arrays,
    zero_where,
    zeros_like,
)
from invgp.core.backend.linear_algebra import (
    add_weighted_gram,
    cholesky,
    lower_inverse,
    lower_outer_product,
    lower_product,
    matrix_vector_product,
    product,
    solve_triangular,
    sum_of_products,
    sum_of_squares,
    symmetrise,
    transpose_multiply,
    tril,
    tril_with_diagonal,
    vector_matrix_product,
)

__all__ = [
    "Array",
    "Backend",
    "DeviceError",
    "add_weighted_gram",
    "array_namespace",
    "backend_of",
    "cholesky",
    "clip_negative",
    "device_of",
    "exp_in_place",
    "identity",
    "log_in_place",
    "lower_inverse",
    "lower_outer_product",
    "lower_product",
    "matrix_vector_product",
    "product",
    "select_backend",
    "solve_triangular",
    "sqrt_in_place",
    "stack_arrays",
    "sum_of_products",
    "sum_of_squares",
    "symmetrise",
    "to_numpy",
    "transpose_multiply",
    "tril",
    "tril_with_diagonal",
    "vector_matrix_product",
    "zero_where",
    "zeros_like",
]
