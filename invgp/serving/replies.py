"""Answers to UM-Bridge requests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from invgp.adapters.http_client import parse_json, quote_text
from invgp.adapters.protocol import ForwardModel
from invgp.problem import Floats

PROTOCOL_VERSION = 1.0
FEATURES = ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")
METHODS = {"/Info": "GET", **{f"/{name}": "POST" for name in ("ModelInfo", "InputSizes", "OutputSizes", *FEATURES)}}

RunFunction = Callable[[Floats], Awaitable[Floats]]


class RequestError(Exception):
    """A request is answered by an error.

    Parameters
    ----------
    code : int
        HTTP status.
    kind : str
        Type of the error in UM-Bridge.
    message : str
        One sentence.
    """

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


def check_method(method: str, path: str) -> None:
    """Raise `RequestError` unless UM-Bridge defines this path with this method."""
    if path not in METHODS:
        raise RequestError(404, "UnsupportedFeature", f"there is no {quote_text(method)} {quote_text(path)}")
    if method != METHODS[path]:
        raise RequestError(
            405, "UnsupportedFeature", f"{path} must be requested by {METHODS[path]}, not {quote_text(method)}"
        )


async def answer_request(model: ForwardModel, path: str, body: bytes, run: RunFunction) -> dict[str, Any]:
    """Answer a request.

    Parameters
    ----------
    model : ForwardModel
        The model that is served.
    path : str
        One of `METHODS`.
    body : bytes
        Body of the request.
    run : callable
        Coroutine function from inputs (I,) to outputs (P,); it may raise `RequestError`.

    Returns
    -------
    dict
        Content of the answer.

    Raises
    ------
    RequestError
        The answer is an error.
    """
    if path == "/Info":
        return {"protocolVersion": PROTOCOL_VERSION, "models": [model.name]}
    message, feature = _read_message(body), path.removeprefix("/")
    if message.get("name") != model.name:
        sentence = f"there is no model {quote_text(repr(message.get('name')))}; there is {model.name!r}"
        raise RequestError(400, "ModelNotFound", sentence)
    if message.get("config"):
        raise RequestError(400, "InvalidInput", f"the model {model.name!r} takes no config, so it must be empty")
    if feature == "ModelInfo":
        return {"support": {name: name == "Evaluate" for name in FEATURES}}
    if feature == "InputSizes":
        return {"inputSizes": [q.size for q in model.inputs]}
    if feature == "OutputSizes":
        return {"outputSizes": [q.size for q in model.outputs]}
    if feature != "Evaluate":
        raise RequestError(400, "UnsupportedFeature", f"{feature} is not supported by the model {model.name!r}")
    outputs = await run(_read_input(model, message.get("input")))
    ends = list(itertools.accumulate(q.size for q in model.outputs))[:-1]
    return {"output": [block.tolist() for block in np.split(outputs, ends)]}


def _read_message(body: bytes) -> Mapping[str, Any]:
    try:
        message = parse_json(body)
    except ValueError as error:
        raise RequestError(400, "InvalidInput", f"the request is not JSON: {error}") from error
    if not isinstance(message, Mapping):
        raise RequestError(400, "InvalidInput", "the request is not a JSON object")
    return message


def _read_input(model: ForwardModel, blocks: Any) -> Floats:
    """Return the inputs (I,) from a list of lists; check the sizes and that all numbers are finite."""
    if not isinstance(blocks, list) or not all(isinstance(block, list) for block in blocks):
        raise RequestError(400, "InvalidInput", "input must be a list of lists of numbers")
    sizes, expected = [len(block) for block in blocks], [q.size for q in model.inputs]
    if sizes != expected:
        names = ", ".join(f"{q.name} ({q.size}, in {q.unit})" for q in model.inputs)
        sentence = f"input must have one block for each of {names}; it has {len(sizes)}, of sizes {sizes[:20]}"
        raise RequestError(400, "InvalidInput", sentence)
    for quantity, block in zip(model.inputs, blocks, strict=True):
        if not all(isinstance(number, float) and math.isfinite(number) for number in block):
            raise RequestError(400, "InvalidInput", f"input {quantity.name} must hold finite numbers only")
    return np.asarray([number for block in blocks for number in block], dtype=np.float64)
