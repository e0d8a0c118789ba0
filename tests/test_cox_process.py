"""The coal-mining disasters, small: counts, chains and posteriors hang together."""

import sys

import numpy as np
import pytest


@pytest.fixture(scope="module")
def study(root):
    """The modules of the case study."""
    folder = str(root / "case_studies" / "cox_process")
    sys.path.insert(0, folder)
    try:
        import chains  # noqa: PLC0415
        import disasters  # noqa: PLC0415
        import posteriors  # noqa: PLC0415

        yield disasters, chains, posteriors
    finally:
        sys.path.remove(folder)


def test_that_the_disasters_are_those_of_the_paper(study):
    counts = study[0].disasters()
    assert counts.count.shape == (811,)
    assert counts.count.sum() == 191
    assert counts.offset == pytest.approx(np.log(191 / 811))
    assert counts.year[0] == pytest.approx(1851.2, abs=0.1)


def test_that_full_gaussians_agree_with_slice_sampling_and_diagonal_ones_are_too_narrow(study, tmp_path):
    disasters, chains, posteriors = study
    counts = disasters.disasters(days_a_bin=500)
    exact = chains.sample(counts, chains=8, draws=1200)
    assert exact.r_hat < 1.02
    found = list(posteriors.fits(counts, (0.2, 1.0)))
    for posterior in found:
        ratio = posterior.std_ratio(exact)
        if posterior.family == "full Gaussian":
            assert posterior.mean_error(exact) < 0.1
            assert np.abs(ratio - 1.0).max() < 0.1
        else:
            assert posterior.mean_error(exact) < 0.3
            assert ratio.max() < 0.5
    posteriors.figure(counts, found, exact, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    rows = list(posteriors.rows(found, exact))
    assert len(rows) == 2 * len(found)
    assert sum("reference" in row for row in rows) == 4
