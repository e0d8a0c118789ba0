"""A simulator, whatever it is, behind one protocol."""

from .callables import CallableModel
from .executables import ExecutableModel
from .programs import InputFile, OutputFile
from .protocol import (
    AdapterError,
    Evaluations,
    ForwardModel,
    Quantity,
    RunContext,
    Status,
    input_size,
    output_size,
)
from .templates import Template, TemplateError

__all__ = [
    "AdapterError",
    "CallableModel",
    "Evaluations",
    "ExecutableModel",
    "ForwardModel",
    "InputFile",
    "OutputFile",
    "Quantity",
    "RunContext",
    "Status",
    "Template",
    "TemplateError",
    "input_size",
    "output_size",
]
