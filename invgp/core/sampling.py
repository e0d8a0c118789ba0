"""Standard normal points, drawn on the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc


def standard_normals(rng: np.random.Generator, samples: int, sites: int, latents: int) -> NDArray[np.float64]:
    """Scrambled Sobol points through the normal quantile, turned by one random rotation a site.

    The rotation keeps the points' even spread and makes the errors of different sites independent.

    Returns
    -------
    (samples, sites, latents)
    """
    exponent = max(int(np.ceil(np.log2(samples))), 0)
    uniforms = qmc.Sobol(latents, scramble=True, rng=rng).random_base2(exponent)[:samples]
    tiny = np.finfo(np.float64).tiny
    points = ndtri(np.clip(uniforms, tiny, 1.0 - np.finfo(np.float64).epsneg))
    rotations, triangles = np.linalg.qr(rng.standard_normal((sites, latents, latents)))
    # The sign of the diagonal makes the rotation uniform (Haar).
    rotations *= np.sign(np.diagonal(triangles, axis1=1, axis2=2))[:, None, :]
    rotated: NDArray[np.float64] = np.einsum("sj,nij->sni", points, rotations)
    return rotated
