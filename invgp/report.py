"""The earlier name of `invgp.reports`, for `import invgp.report`."""

from invgp.reports import render, write

__all__ = ["render", "write"]
