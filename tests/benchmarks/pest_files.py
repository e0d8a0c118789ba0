"""PEST files as invgp and pyEMU read them, counted and compared.

python tests/benchmarks/pest_files.py [FOLDER ...] [--packages pyemu flopy ...] [--record]

All .pst, .tpl and .ins files below the folders and in the source packages are read. pyEMU, in an environment of its
own, reads the same files. It also writes cases of both styles first (`written by pyEMU`), so that there is something to
compare even if the packages ship no files. Both must count the same parameters, observations, equations of prior
information and commands of a control file, parameters of a template, and observations of instructions. Files that one
side refuses are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

from environments import cache_folder, environment

from invgp.adapters import AdapterError, PestTemplate, TemplateError
from invgp.adapters.pest.control import read_control
from invgp.adapters.pest.files import read_setting
from invgp.adapters.pest.instructions import InstructionError, Instructions

SIDE = Path(__file__).resolve().parent / "_pyemu_side.py"
RECORD = Path(__file__).with_name("pest_files.json")
PACKAGES = tuple(
    """
    pyemu flopy pypestutils modflow-setup sfrmaker pygsflow spotpy pastas nlmod imod xugrid hydromt hydromt-wflow
    mf6rtm modflowapi phydrus pyswmm swmm-api pyswat swatpy toughio pytough mikeio
    """.split()  # noqa: SIM905 - a long list of words
)
SUFFIXES = (".pst", ".tpl", ".ins")
AT_ONCE = 200  # files on a command line
LONGEST = 300  # s, for a download: pip builds the metadata of a source package


def read(path: Path) -> str:
    """Return the counts of a file as text, or the reason why it is refused."""
    try:
        if path.suffix.lower() == ".pst":
            case = read_control(path)
            commands = len(case.commands) + len(case.unused_commands)
            return f"{len(case.parameters)} {len(case.observations)} {len(case.equations)} {commands}"
        text = read_setting("file", path)
        return str(len(set((PestTemplate(text) if path.suffix.lower() == ".tpl" else Instructions(text)).names)))
    except (AdapterError, TemplateError, InstructionError) as error:
        return f"error: {error}"


def read_by_pyemu(python: Path, files: list[Path]) -> dict[Path, str]:
    """Return what pyEMU reads, by file."""
    found: dict[Path, str] = {}
    for start in range(0, len(files), AT_ONCE):
        done = subprocess.run(
            [python, SIDE, "count", *files[start : start + AT_ONCE]], capture_output=True, text=True, check=True
        )
        for line in done.stdout.splitlines():
            name, tab, counts = line.partition("\t")
            if tab:
                found[Path(name)] = counts
    return found


def unpack(python: Path, package: str, folder: Path) -> bool:
    """Download the source of a package, or else its wheel, and unpack it; return whether there is one."""
    folder.mkdir()
    for options in (["--no-binary", package], []):
        command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *options, package]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            continue
        if not done.returncode:
            break
    archives = list(folder.iterdir())
    for archive in archives:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as content:
                content.extractall(folder, filter="data")
        else:
            with zipfile.ZipFile(archive) as content:
                content.extractall(folder)
    return bool(archives)


def compare(python: Path, name: str, folder: Path) -> tuple[Counter[str], list[str]]:
    """Count the files below a folder by how both sides read them, and describe the differences."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    # Qt and other programs have files of the same names.
    files = [path for path in files if read_setting("file", path).lstrip()[:1] not in ("", "<", "{")]
    theirs = read_by_pyemu(python, files)
    counts: Counter[str] = Counter(files=len(files))
    lines: list[str] = []
    for path in files:
        ours, other = read(path), theirs.get(path, "error: nothing was printed")
        refused = ours.startswith("error"), other.startswith("error")
        kind = {(False, False): "same" if ours == other else "different", (True, False): "only pyEMU reads",
                (False, True): "only invgp reads", (True, True): "both refuse"}[refused]  # fmt: skip
        counts[kind] += 1
        if kind != "same":
            lines.append(f"{name}: {path.relative_to(folder)}: {kind}: invgp {ours!r}, pyEMU {other!r}")
    return counts, lines


def main() -> None:
    """Print the table and the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="with PEST files")
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES), help="whose sources are downloaded")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    options = parser.parse_args()
    python = environment(cache_folder("pyemu"), [["pyemu"]], ["pyemu"], "pyEMU")
    kinds = ("files", "same", "different", "only invgp reads", "only pyEMU reads", "both refuse")
    print(f"| source | {' | '.join(kinds)} |\n| --- | {' | '.join('---:' for _ in kinds)} |", flush=True)
    differences: list[str] = []
    missing: list[str] = []
    found: dict[str, dict[str, int]] = {}
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        written = Path(directory) / "written"
        subprocess.run([python, SIDE, "write", written], check=True, capture_output=True)
        folders = {"written by pyEMU": written, **{str(folder): folder for folder in options.folders}}
        for name in (*folders, *options.packages):
            folder = folders.get(name, Path(directory) / name)
            if name in options.packages and not unpack(python, name, folder):
                print(f"| {name} | not downloaded {'| ' * len(kinds)}|", flush=True)
                missing.append(name)
                continue
            counts, lines = compare(python, name, folder)
            found[name] = {kind: counts[kind] for kind in kinds}
            total.update(counts)
            print(f"| {name} | {' | '.join(str(counts[kind]) for kind in kinds)} |", flush=True)
            differences += lines
            if name in options.packages:
                shutil.rmtree(folder)
    print(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
    print("", *differences, sep="\n")
    if options.record:
        content = {"sources": found, "not downloaded": missing, "differences": differences}
        RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
