"""A fit that is broken off goes on to the same numbers, to the bit, as one that never was."""

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest

from invgp.core.parameters import BLOCKS
from invgp.core.stochastic_optimisers import AdaDelta
from invgp.core.training import Blocks, MiniBatches
from invgp.errors import WriteError
from invgp.estimator import SAVIGP
from invgp.files.archives import CHECKPOINT, read_archive, write_archive
from invgp.likelihoods import BlackBox, Gaussian, Softmax, StudentT

pytestmark = pytest.mark.filterwarnings("ignore:the fit has not converged")
RNG = np.random.default_rng(4)
X = np.sort(RNG.uniform(0, 6, (40, 1)), axis=0)
Y = np.sin(1.5 * X[:, 0]) + 0.3 * RNG.standard_normal(40)
CLASSES = np.eye(3)[np.digitize(np.sin(X[:, 0]), [-0.4, 0.4])]
ROUNDS = Blocks(evaluations=3, rounds=4, tolerance=0.0)
EPOCHS = MiniBatches(natural=0.2, batch=15, epochs=4, samples=16)


@dataclass(frozen=True)
class Momentum:
    """An optimiser of one's own."""

    @dataclass(frozen=True)
    class State:
        trial: np.ndarray
        speed: np.ndarray
        reported: int = 0

    def init(self, point):
        return self.State(point, np.zeros_like(point))

    def tell(self, state, gradient):
        speed = 0.9 * state.speed - 0.01 * gradient
        return self.State(state.trial + speed, speed, state.reported + 1)


FITS = {
    "theorem 2": (Gaussian(0.5), Y, {"method": ROUNDS}),
    "full": (StudentT(0.5), Y, {"method": ROUNDS, "inducing": 6}),
    "mixture": (Gaussian(0.5), Y, {"method": ROUNDS, "inducing": 6, "posterior": "diagonal", "components": 2}),
    "the paper's order": (Gaussian(0.5), Y, {"method": replace(Blocks.of_the_paper(), rounds=3), "inducing": 6}),
    "three classes": (Softmax(3), CLASSES, {"method": ROUNDS, "inducing": 6}),
    "natural gradients": (Gaussian(0.5), Y, {"method": EPOCHS, "inducing": 6}),
    "natural gradients alone": (
        Gaussian(0.5),
        Y,
        {"method": replace(EPOCHS, learn=("posterior",)), "inducing": 6},
    ),
    "adam": (Softmax(3), CLASSES, {"method": replace(EPOCHS, natural=0.0), "inducing": 6}),
    "adadelta": (Gaussian(0.5), Y, {"method": replace(EPOCHS, natural=0.0, optimiser=AdaDelta()), "inducing": 6}),
    "one's own": (Gaussian(0.5), Y, {"method": replace(EPOCHS, natural=0.0, optimiser=Momentum()), "inducing": 6}),
    "float32": (Gaussian(0.5), Y, {"method": EPOCHS, "inducing": 6, "dtype": "float32"}),
}


class EnoughError(Exception):
    """What a report raises to stop a fit."""


def stop_after(number):
    def report(progress):
        if progress.round == number:
            raise EnoughError

    return report


def assert_same(model, other):
    assert model.trace_ == other.trace_
    for name in BLOCKS:
        np.testing.assert_array_equal(
            getattr(model._bound_state.parameters, name), getattr(other._bound_state.parameters, name)
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_that_a_fit_stopped_twice_ends_at_the_same_numbers(name, tmp_path):
    likelihood, y, settings = FITS[name]
    whole = SAVIGP(likelihood, **settings).fit(X, y)
    kept = {**settings, "checkpoint": tmp_path / "fit.npz"}
    for number in (1, 2):
        with pytest.raises(EnoughError):
            SAVIGP(likelihood, **kept).fit(X, y, report=stop_after(number))
    rounds = []
    again = SAVIGP(likelihood, **kept).fit(X, y, report=lambda progress: rounds.append(progress.round))
    assert rounds == list(range(3, len(whole.trace_) + 1))
    assert_same(again, whole)


def test_that_the_checkpoint_of_an_earlier_version_is_read(tmp_path):
    path = tmp_path / "fit.npz"
    whole = SAVIGP(Gaussian(0.5), method=ROUNDS, checkpoint=path).fit(X, Y)
    about, arrays = read_archive(path, CHECKPOINT, {})
    about["settled"] = about.pop("converged")
    about["settings"]["method.anew"] = about["settings"].pop("method.profile_posterior")
    write_archive(path, CHECKPOINT, about, arrays)
    again = SAVIGP(Gaussian(0.5), method=ROUNDS, checkpoint=path).fit(X, Y)
    assert again.converged_ == whole.converged_
    assert_same(again, whole)


SCRIPT = """
import sys
import numpy as np
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import Gaussian
X = np.linspace(0, 6, 150)[:, None]
y = np.sin(1.5 * X[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(150)
methods = {
    "blocks": Blocks(evaluations=2, rounds=25, tolerance=0.0),
    "batches": MiniBatches(natural=0.2, batch=15, epochs=25, samples=16),
}
name, checkpoint, result = sys.argv[1:]
SAVIGP(Gaussian(0.5), inducing=20, method=methods[name], checkpoint=checkpoint or None).fit(X, y).save(result)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["blocks", "batches"])
def test_that_a_killed_fit_ends_at_the_same_numbers(method, tmp_path):
    def command(checkpoint, result):
        return [sys.executable, "-c", SCRIPT, method, str(checkpoint), str(tmp_path / result)]

    checkpoint = tmp_path / "fit.npz"
    fit = subprocess.Popen(command(checkpoint, "killed.npz"))
    while not checkpoint.exists():
        assert fit.poll() is None
        time.sleep(0.001)
    fit.kill()
    fit.wait()
    assert not (tmp_path / "killed.npz").exists()
    for begun, result in ((checkpoint, "resumed.npz"), ("", "whole.npz")):
        with patch.object(sys, "argv", command(begun, result)[2:]):
            exec(SCRIPT, {})
    with np.load(tmp_path / "resumed.npz") as resumed, np.load(tmp_path / "whole.npz") as whole:
        for name in (*BLOCKS, "trace"):
            np.testing.assert_array_equal(resumed[name], whole[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theorem 2", "natural gradients"])
def test_that_a_completed_fit_is_not_repeated_but_can_be_extended(name, tmp_path):
    likelihood, y, settings = FITS[name]
    method = settings["method"]
    if isinstance(method, MiniBatches):
        method = replace(method, shrink=False)  # steps that shrink are others in a longer fit from the beginning
    settings = {**settings, "method": method}
    kept = {**settings, "checkpoint": tmp_path / "fit.npz"}
    first = SAVIGP(likelihood, **kept).fit(X, y)
    again = SAVIGP(likelihood, **kept).fit(X, y, report=stop_after(1))
    assert_same(again, first)
    longer = replace(method, rounds=6) if isinstance(method, Blocks) else replace(method, epochs=6)
    further = SAVIGP(likelihood, **{**kept, "method": longer}).fit(X, y)
    assert_same(further, SAVIGP(likelihood, **{**settings, "method": longer}).fit(X, y))
    assert len(further.trace_) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"random_state": 1},
            r"random_state must be 0 to continue from the checkpoint '.*fit\.npz', was 1: use another file",
        ),
        ({"inducing": 7}, "inducing must be 6 .*, was 7"),
        ({"method": replace(EPOCHS, batch=10)}, r"method\.batch must be 15 .*, was 10"),
        ({"method": ROUNDS}, "method must be MiniBatches .*, was Blocks"),
        ({"likelihood": Gaussian(0.4)}, r"likelihood\.log_scale\.values must be .*, was "),
        ({"likelihood": StudentT(0.5)}, "likelihood must be Gaussian .*, was StudentT"),
        ({"length_scale": [2.0]}, r"length_scale must be None .*, was \[2\.0\]"),
        ({"y": Y + 1e-12}, r"y must be the array \(40, 1\) of SHA-256 .*, was the array \(40, 1\) of SHA-256"),
        ({"X": X[:, [0, 0]]}, r"X must be the array \(40, 1\) of .*, was the array \(40, 2\) of"),
    ],
)
def test_that_the_checkpoint_of_another_fit_is_refused(change, message, tmp_path):
    likelihood, y, settings = FITS["natural gradients"]
    settings = {**settings, "likelihood": likelihood, "checkpoint": tmp_path / "fit.npz"}
    SAVIGP(**settings).fit(X, y)
    data = {"X": change.pop("X", X), "y": change.pop("y", y)}
    with pytest.raises(ValueError, match=message):
        SAVIGP(**{**settings, **change}).fit(**data)


def test_that_a_black_box_and_noise_per_site_are_recognised(tmp_path):
    def log_density(y, f):
        return -0.5 * np.sum((y - f) ** 2, axis=-1) / 0.3**2

    for name, likelihood in {"box": BlackBox(log_density, 1, 1), "noise": Gaussian(np.full((40, 1), 0.3))}.items():
        kept = {"inducing": 6, "method": EPOCHS, "checkpoint": tmp_path / f"{name}.npz"}
        first = SAVIGP(likelihood, **kept).fit(X, Y)
        assert_same(SAVIGP(likelihood, **kept).fit(X, Y), first)


def test_that_other_files_are_rejected_with_a_message(tmp_path):
    path = tmp_path / "fit.npz"
    kept = {"inducing": 6, "method": EPOCHS, "checkpoint": path}
    path.write_text("not an archive")
    with pytest.raises(ValueError, match=r"fit\.npz' must be the checkpoint of a fit, was a file that is damaged"):
        SAVIGP(Gaussian(0.5), **kept).fit(X, Y)
    path.unlink()
    model = SAVIGP(Gaussian(0.5), **kept).fit(X, Y)
    with pytest.raises(ValueError, match="must be a saved model, was the checkpoint of a fit"):
        SAVIGP.load(path, Gaussian(0.5))
    with pytest.raises(ValueError, match="must be a saved model, was no file at all"):
        SAVIGP.load(tmp_path / "nothing.npz", Gaussian(0.5))
    model.save(path)
    with pytest.raises(ValueError, match="must be the checkpoint of a fit, was a saved model"):
        SAVIGP(Gaussian(0.5), **kept).fit(X, Y)


def test_that_a_checkpoint_that_cannot_be_written_is_reported_and_leaves_no_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="the checkpoint of a fit could not be written to"):
        SAVIGP(Gaussian(0.5), inducing=6, method=EPOCHS, checkpoint=tmp_path / "file" / "fit.npz").fit(X, Y)
    SAVIGP(Gaussian(0.5), inducing=6, method=EPOCHS, checkpoint=tmp_path / "new" / "fit.npz").fit(X, Y)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["fit.npz"]
