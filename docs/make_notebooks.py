"""Execute the notebooks of docs/notebooks in place: python docs/make_notebooks.py [NAME ...]."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"


def execute(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook in an empty directory.

    Parameters
    ----------
    path : Path
        The notebook file; it is only read.

    Returns
    -------
    nbformat.NotebookNode
        The notebook with its new outputs, without the times and versions that would change with each execution.
    """
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as directory:
        resources = {"metadata": {"path": directory}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            nbformat.write(execute(path), path)
            print(path.relative_to(NOTEBOOKS.parent))
