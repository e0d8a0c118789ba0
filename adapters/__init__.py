"""Adapters: simulators of several types with one interface."""

from .batched import BatchedModel
from .callables import CallableModel
from .dakota import dakota_model
from .executables import ExecutableModel
from .persistent import PersistentModel
from .pest.instructions import InstructionFile, load_instructions
from .pest.pest_model import pest_model
from .pest.pest_template import PestTemplate
from .programs import InputFile, LocalFile
from .protocol import (
    AdapterError,
    Evaluations,
    ForwardModel,
    Quantity,
    RunContext,
    Status,
    input_size,
    output_size,
    split_jacobian,
)
from .readers import CsvFile, EclipseFile, JsonFile, NetcdfFile, OutputFile, PythonFile, Reader, RegexFile, TableFile
from .templates import InputTemplate, Template, TemplateError
from .umbridge import UmbridgeModel

__all__ = [
    "AdapterError",
    "BatchedModel",
    "CallableModel",
    "CsvFile",
    "EclipseFile",
    "Evaluations",
    "ExecutableModel",
    "ForwardModel",
    "InputFile",
    "InputTemplate",
    "InstructionFile",
    "JsonFile",
    "LocalFile",
    "NetcdfFile",
    "OutputFile",
    "PersistentModel",
    "PestTemplate",
    "PythonFile",
    "Quantity",
    "Reader",
    "RegexFile",
    "RunContext",
    "Status",
    "TableFile",
    "Template",
    "TemplateError",
    "UmbridgeModel",
    "dakota_model",
    "input_size",
    "load_instructions",
    "output_size",
    "pest_model",
    "split_jacobian",
]
