"""Write docs/pest_files.md from tests/benchmarks/pest_files.json: python docs/make_pest_files.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "tests" / "benchmarks" / "pest_files.json"
KINDS = ("files", "same", "different", "only invgp reads", "only pyEMU reads", "both refuse")
ABOUT = """# PEST files of other packages
`python tests/benchmarks/pest_files.py --record` reads all control, template and instruction files (`.pst`, `.tpl` and
`.ins`) in the source distributions of packages on PyPI, or else in their wheels, with invgp and with pyEMU. Both must
count the same parameters, observations, equations of prior information and commands of a control file, parameters of a
template, and observations of instructions. pyEMU also writes cases for this comparison: of three sizes in both styles,
and one with `PstFrom`. `python docs/make_pest_files.py` generates this page.
"""


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    sources = record["sources"]
    some = {name: counts for name, counts in sources.items() if counts["files"]}
    rows = [[name, *(str(counts[kind]) for kind in KINDS)] for name, counts in some.items()]
    rows.append(["all", *(str(sum(counts[kind] for counts in some.values())) for kind in KINDS)])
    lines = [
        ABOUT,
        f"| source | {' | '.join(KINDS)} |",
        f"| --- |{' ---: |' * len(KINDS)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"No such files are in: {', '.join(name for name in sources if name not in some)}.",
    ]
    if record["not downloaded"]:
        lines += ["", f"Not on PyPI, or not built from source here: {', '.join(record['not downloaded'])}."]
    if record["differences"]:
        lines += ["", "Differences:", "", *(f"- {line}" for line in record["differences"])]
    debian = "No package of Debian 12 contains a control file (`apt-file search -x '\\.pst$'`)."
    return "\n".join([*lines, "", debian, ""])


def main() -> None:
    """Write the page."""
    (HERE / "pest_files.md").write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
