"""A simulator that is a Dakota driver, with a parameters file and a results file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from .executables import Bounds, ExecutableModel
from .programs import InputFile, LocalFile
from .protocol import AdapterError, Floats, Quantity
from .quantities import Label, check_quantities, columns_of, did_you_mean, size_of
from .readers.structured import json_number
from .readers.text import IncompleteError, count_error, parse_number, read_text
from .templates import TemplateError, Values

PARAMETERS = "params.in"
RESULTS = "results.out"

Format = Literal["json", "text", "aprepro"]

_FORMATS = ("json", "text", "aprepro")


def dakota_model(
    driver: tuple[str, ...],
    inputs: tuple[Quantity, ...],
    outputs: tuple[Quantity, ...],
    *,
    format: Format = "json",  # noqa: A002 - Dakota's word
    descriptor: str = "{name}_{label}",
    files: tuple[LocalFile, ...] = (),
    timeout: float | None = None,
    threads: int = 1,
    environment: Mapping[str, str] | None = None,
    bounds: Mapping[str, Bounds] | None = None,
    partial: bool = False,
    keep: str = "failed",
    search_path: Path | None = None,
    jacobian: bool = False,
    jacobian_cost: float = 0.0,
) -> ExecutableModel:
    """Return a model of a Dakota driver.

    The driver is run as by the fork interface of Dakota, with the names of the parameters file and the results file as
    its last two arguments. Function values are requested, with `jacobian` also gradients, never Hessians.

    Parameters
    ----------
    driver : tuple of str
        Program and arguments, as the command of an `ExecutableModel`.
    inputs, outputs : tuple of Quantity
        Without labels, their names are the descriptors of Dakota.
    format : {"json", "text", "aprepro"}
        Format of both files; with ``"aprepro"``, that of the parameters file, and the results file is text.
    descriptor : str
        Pattern of the descriptor of a number with a label: with ``{name}_{label}``, the number of ``depth`` with label
        1 is ``depth_1``.
    files, timeout, threads, environment, bounds, partial, keep, search_path, jacobian_cost
        As in `ExecutableModel`.
    jacobian : bool
        Whether gradients of all responses by all variables are requested.

    Returns
    -------
    ExecutableModel

    Raises
    ------
    AdapterError
        The settings are invalid.
    """
    if format not in _FORMATS:
        raise AdapterError("format", f"must be 'json', 'text' or 'aprepro'; it is {format!r}")
    if not driver:
        raise AdapterError("driver", "must name a program, but is empty")
    check_quantities("inputs", inputs)
    check_quantities("outputs", outputs)
    variables = _descriptors("inputs", inputs, descriptor)
    responses = _descriptors("outputs", outputs, descriptor)
    try:
        return ExecutableModel(
            command=(*driver, PARAMETERS, RESULTS),
            inputs=inputs,
            outputs=outputs,
            input_files=(InputFile(DakotaParameters(format, variables, responses, jacobian), PARAMETERS),),
            output_files=(DakotaResults(format, responses, gradient_size=len(variables) if jacobian else 0),),
            files=files,
            timeout=timeout,
            threads=threads,
            environment=environment or {},
            bounds=bounds or {},
            partial=partial,
            keep=keep,
            search_path=search_path,
            jacobian=jacobian,
            jacobian_cost=jacobian_cost,
        )
    except AdapterError as error:
        if error.setting.startswith("command"):
            raise AdapterError(error.setting.replace("command", "driver", 1), error.sentence) from error
        raise


@dataclass(frozen=True)
class DakotaParameters:
    """The parameters file: all variables and the requested responses.

    Parameters
    ----------
    format : {"json", "text", "aprepro"}
    variables : tuple of str
        Descriptor of each number of the inputs, in order.
    responses : tuple of str
        Descriptor of each number of the outputs, in order.
    gradients : bool
        Whether gradients are requested beside the values.
    """

    format: Format
    variables: tuple[str, ...]
    responses: tuple[str, ...]
    gradients: bool = field(default=False, repr=False)  # the digest of the model has it

    @property
    def active_set(self) -> int:
        """What is requested of each response: 1 for its value, 3 for value and gradient."""
        return 3 if self.gradients else 1

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` unless there is a variable for each number."""
        if size_of(inputs) != len(self.variables):
            raise TemplateError(f"has {len(self.variables)} variables for {size_of(inputs)} numbers")

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Return all columns."""
        return set(columns_of(inputs))

    def render(self, values: Values) -> str:
        """Return the text of the file; the numbers of `values` are in the order of the inputs."""
        numbers = [n for v in values.values() for n in (v.values() if isinstance(v, Mapping) else (v,))]
        if self.format == "json":
            return self._json(numbers)
        return self._text(numbers) if self.format == "text" else self._aprepro(numbers)

    def _json(self, numbers: Sequence[float]) -> str:
        content = {
            "variables": [{"label": k, "value": v} for k, v in zip(self.variables, numbers, strict=True)],
            "responses": [{"label": label, "active_set": self.active_set} for label in self.responses],
            "derivative_variables": list(self.variables),
            "analysis_components": [],
            "eval_id": "1",
        }
        return json.dumps(content, indent=2) + "\n"

    def _text(self, numbers: Sequence[float]) -> str:
        # Values and labels in columns, as in the standard format of Dakota.
        rows = [(str(len(self.variables)), "variables")]
        rows += [(f"{v:.16e}", label) for label, v in zip(self.variables, numbers, strict=True)]
        rows += [(str(len(self.responses)), "functions")]
        rows += [(str(self.active_set), f"ASV_{i}:{label}") for i, label in enumerate(self.responses, start=1)]
        rows += [(str(len(self.variables)), "derivative_variables")]
        rows += [(str(i), f"DVV_{i}:{label}") for i, label in enumerate(self.variables, start=1)]
        rows += [("0", "analysis_components"), ("1", "eval_id")]
        return "".join(f"{value:>24} {label}\n" for value, label in rows)

    def _aprepro(self, numbers: Sequence[float]) -> str:
        rows = [("DAKOTA_VARS", str(len(self.variables)))]
        rows += [(label, f"{v:.16e}") for label, v in zip(self.variables, numbers, strict=True)]
        rows += [("DAKOTA_FNS", str(len(self.responses)))]
        rows += [(f"ASV_{i}:{label}", str(self.active_set)) for i, label in enumerate(self.responses, start=1)]
        rows += [("DAKOTA_DER_VARS", str(len(self.variables)))]
        rows += [(f"DVV_{i}:{label}", str(i)) for i, label in enumerate(self.variables, start=1)]
        rows += [("DAKOTA_AN_COMPS", "0"), ("DAKOTA_EVAL_ID", "1")]
        return "".join(f"{{ {label:<24} = {value:>24} }}\n" for label, value in rows)


@dataclass(frozen=True)
class DakotaResults:
    """The results file.

    Parameters
    ----------
    format : {"json", "text", "aprepro"}
    responses : tuple of str
        Descriptor of each number of the outputs, in order.
    gradient_size : int
        Length of the gradient of each response; 0 without gradients.
    """

    format: Format
    responses: tuple[str, ...]
    outputs: tuple[str, ...] | None = None
    gradient_size: int = field(default=0, repr=False)  # the digest of the model has it

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The results file."""
        return (RESULTS,)

    def check(self, quantities: tuple[Quantity, ...]) -> None:
        """Raise `AdapterError` unless there is a response for each number."""
        if size_of(quantities) != len(self.responses):
            raise AdapterError("outputs", f"has {len(self.responses)} responses for {size_of(quantities)} numbers")

    def read(self, directory: Path, quantities: tuple[Quantity, ...]) -> Floats:  # noqa: ARG002 - `responses` has their names
        """Read one number per response, by its label or, without labels, in order; then the gradients, if requested."""
        text = read_text(directory, RESULTS)
        if text.lstrip()[:4].lower() == "fail":
            raise ValueError(f"the driver reports a failure: {text.strip()[:60]!r}")
        numbers = self._from_json(text) if self.format == "json" else self._from_text(text)
        missing = [label for label in self.responses if label not in numbers]
        if missing:
            sentence = f"has no response {missing[0]!r}; {did_you_mean(missing[0], numbers)}"
            raise IncompleteError(sentence, np.array([numbers.get(label, math.nan) for label in self.responses]))
        values = [numbers[label] for label in self.responses]
        return np.array([*values, *self._read_gradients(text)], dtype=np.float64)

    def _read_gradients(self, text: str) -> Iterator[float]:
        """Yield the gradients of all responses, one after the other."""
        if not self.gradient_size:
            return
        if self.format == "json":
            known = json.loads(text).get("gradients")
            found = [known.get(label) if isinstance(known, dict) else None for label in self.responses]
        else:
            # Double brackets contain Hessians.
            found = [part.split() for part in re.findall(r"(?<!\[)\[([^\[\]]*)\](?!\])", text)]
            if len(found) != len(self.responses):
                raise ValueError(f"must have {len(self.responses)} gradients in brackets, has {len(found)}")
        for label, gradient in zip(self.responses, found, strict=True):
            if not isinstance(gradient, list) or len(gradient) != self.gradient_size:
                was = len(gradient) if isinstance(gradient, list) else "none"
                raise ValueError(f"the gradient of {label!r} must have {self.gradient_size} numbers, has {was}")
            for number in gradient:
                what = f"the gradient of {label!r}"
                yield json_number(number, what) if self.format == "json" else parse_number(number, what)

    def _from_json(self, text: str) -> dict[str, float]:
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise ValueError("must be a JSON object with 'functions'")  # noqa: TRY004 - a fault of the file
        failed = content.get("fail")
        if failed is True or (isinstance(failed, str) and failed.lower() == "true"):
            raise ValueError("the driver reports a failure, 'fail': 'true'")
        functions = content.get("functions")
        if not isinstance(functions, dict):
            raise ValueError("has no object 'functions'")  # noqa: TRY004 - as above
        return {label: json_number(functions[label], label) for label in self.responses if label in functions}

    def _from_text(self, text: str) -> dict[str, float]:
        """Return the numbers by response: by their labels or, if these are others or missing, in order."""
        # Brackets contain gradients and Hessians.
        values = _split_values(text.partition("[")[0], self.responses)
        labels = [label for _, label in values]
        if set(labels).isdisjoint(self.responses):
            if len(values) != len(self.responses):
                error = count_error(len(self.responses), len(values))
                if not any(labels):
                    raise error
                wanted = ", ".join(map(repr, self.responses[:3])) + (", ..." if len(self.responses) > 3 else "")
                raise ValueError(f"{error}, and no label is one of {wanted}; set `names` of the output to the labels")
            labels = list(self.responses)
        found: dict[str, float] = {}
        for label, (number, _) in zip(labels, values, strict=True):
            if label in found and label in self.responses:
                raise ValueError(f"has the response {label!r} twice")
            found[label] = number
        return found


def _split_values(text: str, responses: Sequence[str]) -> list[tuple[float, str]]:
    """Return the numbers of a results file, each with its label or an empty text, which any white space separates."""
    values: list[tuple[float, str]] = []
    expects_label = False
    for first, word in ((not i, word) for line in text.splitlines() for i, word in enumerate(line.split())):
        # In the line of its number, a label may look like a number.
        if expects_label and ((word in responses and not first) or not _is_number(word)):
            values[-1] = (values[-1][0], word)
            expects_label = False
            continue
        name = responses[min(len(values), len(responses) - 1)]
        comments = ", and no comments, as for Dakota" if word.startswith("#") else ""
        what = f"must hold numbers with or without labels, such as '1.5 {name}'{comments}"
        values.append((parse_number(word, what), ""))
        expects_label = True
    return values


def _is_number(word: str) -> bool:
    try:
        parse_number(word, "")
    except ValueError:
        return False
    return True


def _describe(quantity: Quantity, descriptor: str) -> list[str]:
    return [
        name if label is None else descriptor.replace("{name}", name).replace("{label}", str(label))
        for name, label in columns_of([quantity])
    ]


def _descriptors(setting: str, quantities: tuple[Quantity, ...], descriptor: str) -> tuple[str, ...]:
    if "{label}" not in descriptor or re.search(r"[{}\s]", re.sub(r"\{name\}|\{label\}", "", descriptor)):
        raise AdapterError("descriptor", f"must be such as '{{name}}_{{label}}', with {{label}}; it is {descriptor!r}")
    names = [name for quantity in quantities for name in quantity.names or _describe(quantity, descriptor)]
    for name in names:
        if names.count(name) > 1:
            raise AdapterError("descriptor", f"{descriptor!r} calls two of the {setting} {name!r}")
        if len(name.split()) != 1:
            raise AdapterError(setting, f"{name!r} cannot be a descriptor of Dakota's: it holds white space")
    return tuple(names)
