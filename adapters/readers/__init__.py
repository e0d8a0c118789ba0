"""Readers of output files: one class per format, with one interface."""

from .eclipse import EclipseFile
from .isolation import PythonFile
from .netcdf import NetcdfFile
from .reader import OutputFile, Reader
from .structured import JsonFile, RegexFile
from .tables import CsvFile, TableFile
from .text import read_numbers, read_text

__all__ = [
    "CsvFile",
    "EclipseFile",
    "JsonFile",
    "NetcdfFile",
    "OutputFile",
    "PythonFile",
    "Reader",
    "RegexFile",
    "TableFile",
    "read_numbers",
    "read_text",
]
