"""Files that are damaged or changed: one sentence, whatever was done to them."""

import json
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from invgp.core.training import Blocks
from invgp.estimator import SAVIGP
from invgp.files.archives import read_array
from invgp.likelihoods import Gaussian

X = np.linspace(0, 6, 30)[:, None]


@pytest.fixture(scope="module")
def model():
    return SAVIGP(Gaussian(0.3), inducing=6, method=Blocks(learn=("posterior",))).fit(X, np.sin(X[:, 0]))


def test_that_a_file_cut_off_anywhere_is_reported(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)  # as of a file that is left open
            with pytest.raises(ValueError, match="must be a saved model, was a file that is damaged, or that invgp"):
                SAVIGP.load(path, Gaussian(0.3))


def test_that_a_flipped_byte_is_reported_or_changes_nothing(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    whole, refused = path.read_bytes(), 0
    for at in range(0, len(whole), 43):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            again = SAVIGP.load(path, Gaussian(0.3))
        except ValueError as error:
            refused += 1
            assert str(path) in str(error)  # noqa: PT017 - a file may as well be read
        else:
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert refused > 50


@pytest.mark.parametrize("name", ["posterior", "kernels", "inducing", "likelihood", "prior_mean", "trace"])
def test_that_numbers_that_were_changed_or_taken_out_are_reported(name, model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    for changed in (None, arrays[name] + 1.0, arrays[name][:0]):
        np.savez(path, **{key: value for key, value in {**arrays, name: changed}.items() if value is not None})
        with pytest.raises(ValueError, match="holds other numbers than were written to it: it is damaged, or was"):
            SAVIGP.load(path, Gaussian(0.3))


def npy(header: bytes, content: bytes = b"") -> bytes:
    """A .npy file with any header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


HUGE = npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000, 10)}\n", bytes(80))
DAMAGED = {
    "empty": (b"", "it is empty"),
    "huge shape": (HUGE, "it is damaged"),
    "huge header": (npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"1," * 20_000 + b")}"), "damaged"),
    "no dictionary": (npy(b"'" * 9 + b"((\\\n"), "damaged"),
    "objects": (npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", b"cos\nsystem\n"), "holds objects"),
    "no end": (npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 4)}\n", bytes(99)), "damaged"),
    "text": (b"1,2\n3,4\n", "damaged"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_that_an_array_that_cannot_be_read_is_reported(what, tmp_path):
    content, reported = DAMAGED[what]
    path = tmp_path / "noise.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reported):
        read_array(path)


@pytest.mark.parametrize(
    ("member", "how"), [(HUGE, zipfile.ZIP_STORED), (npy(b"{}") + bytes(10**7), zipfile.ZIP_DEFLATED)]
)
def test_that_a_member_larger_than_the_file_is_refused_before_it_is_read(member, how, model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    with zipfile.ZipFile(path, "a", compression=how) as archive:
        archive.writestr("more.npy", member)
    with pytest.raises(ValueError, match="must be a saved model, was a file that is damaged"):
        SAVIGP.load(path, Gaussian(0.3))


@pytest.mark.parametrize("name", ["settings", "likelihood", "kernels", "fitted", "jitter"])
@pytest.mark.parametrize("value", [None, "text", {"depth": [1]}, [7]])
def test_that_a_description_that_was_changed_is_reported(name, value, model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    about = json.loads(str(arrays["about"]))
    if type(about[name]) is type(value) and name == "fitted":
        return
    np.savez(path, **{**arrays, "about": json.dumps({**about, name: value})})
    with pytest.raises(ValueError, match=r"likelihood must be|must be a saved model, was a file"):
        SAVIGP.load(path, Gaussian(0.3))


@pytest.mark.parametrize("what", ["fifo", "directory", "device"])
def test_that_what_is_no_regular_file_is_not_opened(what, tmp_path):
    path = tmp_path / "model.npz"
    make = {"fifo": os.mkfifo, "directory": Path.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}
    make[what](path)
    with pytest.raises(ValueError, match="must be a saved model, was"):
        SAVIGP.load(path, Gaussian(0.3))
    with pytest.raises(ValueError, match="it is not a regular file"):
        read_array(path)
