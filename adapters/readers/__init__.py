"""Numbers out of what a simulator wrote: one small class for each format, behind one protocol."""

from .base import OutputFile, Reader
from .functions import PythonFile
from .structured import JsonFile, NetcdfFile, RegexFile
from .tables import CsvFile, TableFile
from .text import read_numbers, read_text

__all__ = [
    "CsvFile",
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
