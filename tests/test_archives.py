"""Files that are damaged or changed: one sentence, whatever was done to them."""

import warnings

import numpy as np
import pytest

from invgp.core.training import Blocks
from invgp.estimator import SAVIGP
from invgp.likelihoods import Gaussian

X = np.linspace(0, 6, 30)[:, None]


@pytest.fixture(scope="module")
def model():
    return SAVIGP(Gaussian(0.3), inducing=6, method=Blocks(learn=("posterior",))).fit(X, np.sin(X[:, 0]))


def test_that_a_file_cut_off_anywhere_is_told_in_a_sentence(model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)  # as of a file that is left open
            with pytest.raises(ValueError, match="must be a saved model, was a file that is damaged, or that invgp"):
                SAVIGP.load(path, Gaussian(0.3))


def test_that_a_flipped_byte_is_told_or_changes_nothing(model, tmp_path):
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
def test_that_numbers_that_were_changed_or_taken_out_are_told(name, model, tmp_path):
    path = tmp_path / "model.npz"
    model.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    for changed in (None, arrays[name] + 1.0, arrays[name][:0]):
        np.savez(path, **{key: value for key, value in {**arrays, name: changed}.items() if value is not None})
        with pytest.raises(ValueError, match="holds other numbers than were written to it: it is damaged, or was"):
            SAVIGP.load(path, Gaussian(0.3))
