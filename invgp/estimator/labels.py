"""Labels of classes: conversion between the labels of a user and the numbers that a likelihood takes."""

from __future__ import annotations

import reprlib
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgp.estimator.arguments import Floats
from invgp.likelihoods import Likelihood

Labels = NDArray[Any]


def is_classifier(likelihood: Likelihood) -> bool:
    """Whether the observations of a likelihood are labels of classes."""
    return bool(getattr(likelihood, "classifier", False))


def class_count(likelihood: Likelihood) -> int:
    """Return the number of classes: `classes` if the likelihood has it, otherwise 2 for one output."""
    return int(getattr(likelihood, "classes", max(2, likelihood.outputs)))


def find_classes(y: Any, likelihood: Likelihood) -> Labels:
    """Find the classes, sorted, in labels (N,) of any type, or in one-hot rows (N, C); NaN and None are missing.

    Raises
    ------
    ValueError
        y has not as many classes as the likelihood.
    """
    count = class_count(likelihood)
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == count and count == likelihood.outputs:
        return np.arange(count)
    labels = _drop_missing(_as_column(array))
    found = np.unique(labels)
    if getattr(likelihood, "ordered", False) and found.dtype.kind not in "iufb":
        found = _ordered_categories(y, likelihood)
    if len(found) == count:
        return found
    for usual in (np.arange(count), np.asarray([-1, 1])):
        if len(usual) == count and found.dtype.kind in "iufb" and np.all(np.isin(found, usual)):
            return usual.astype(found.dtype if found.dtype.kind in "iu" else np.int64)
    name = type(likelihood).__name__
    only = ". Only binary classification is supported." if count == 2 else ""
    raise ValueError(
        f"y must have labels of {count} classes for {name}, had {len(found)} class{'es' * (len(found) != 1)}: "
        f"{reprlib.repr(found.tolist())}{only}"
    )


def encode_labels(y: Any, classes: Labels, likelihood: Likelihood) -> Floats:
    """Convert labels (N,) to 0 and 1, (N, 1), or to one-hot rows, (N, C); missing ones to NaN."""
    array = np.asarray(y)
    count = class_count(likelihood)
    if array.ndim == 2 and array.shape[1] == count and count == likelihood.outputs:
        return np.asarray(array, dtype=np.float64)
    labels = _as_column(array)
    missing = _is_missing(labels)
    known = labels[~missing]
    unknown = known[~np.isin(known, classes)]
    if len(unknown):
        raise ValueError(
            f"y must be labels among {reprlib.repr(classes.tolist())}, had {reprlib.repr(unknown[0])} "
            f"and {len(unknown) - 1} more"
        )
    numbers = np.full(len(labels), np.nan)
    order = np.argsort(classes)
    numbers[~missing] = order[np.searchsorted(classes, known, sorter=order)]
    if likelihood.outputs == 1:
        return numbers[:, None]
    rows = np.full((len(labels), count), np.nan)
    rows[~missing] = np.eye(count)[numbers[~missing].astype(int)]
    return rows


def _ordered_categories(y: Any, likelihood: Likelihood) -> Labels:
    """Return the categories of an ordered categorical column of pandas, in their order."""
    kind: Any = getattr(y, "dtype", None)
    if not getattr(kind, "ordered", False):
        raise ValueError(
            f"y must be numbers or an ordered categorical column of pandas for {type(likelihood).__name__}, which "
            "needs the order of the classes, was other labels. Unknown label type: unordered"
        )
    return np.asarray(kind.categories)


def _as_column(array: Labels) -> Labels:
    """Return labels (N,) from an array (N,) or (N, 1)."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"y must be labels of shape (N,), had shape {array.shape}")
    if array.dtype.kind == "c":
        raise ValueError(f"y must be labels, was an array of {array.dtype}")
    if array.dtype.kind == "O" and all(one is None or isinstance(one, Number) for one in array):
        array = np.asarray(array, dtype=np.float64)  # None becomes NaN
    if array.dtype.kind == "f" and np.any(np.isinf(array)):
        raise ValueError("y must be labels, or NaN where nothing was observed, had infinity")
    if array.dtype.kind == "f":
        fractions = array[~np.isnan(array)]
        if np.any(fractions != np.floor(fractions)):
            raise ValueError("y must be labels of classes, had fractions. Unknown label type: continuous")
    return array


def _is_missing(labels: Labels) -> NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind == "O":
        return np.asarray([label is None or label != label for label in labels], dtype=bool)  # noqa: PLR0124 - NaN
    return np.zeros(len(labels), dtype=bool)


def _drop_missing(labels: Labels) -> Labels:
    return labels[~_is_missing(labels)]
