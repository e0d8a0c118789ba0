"""One bound and gradient of a full Gaussian at the size of the paper's MNIST experiment.

Printed beside the time of the matrix products and factorisations that it cannot avoid, measured in the same run with
the same library. The paper's CPU took 42.35 s.

    python tests/benchmarks/bound_and_gradient.py
    python tests/benchmarks/bound_and_gradient.py --sites 6000 --inducing 300 --repeats 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.linalg
from scipy.linalg import blas
from workload import ALL_BLOCKS, POSTERIOR, Size, problem, seconds

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "case_studies"))
from recording import record  # noqa: E402 - beside the case studies, which keep their results in the same way

PAPER_SIZE, PAPER_SECONDS = Size(60_000, 784, 2_400), 42.35
BATCH = 2048


def unavoidable(size: Size) -> dict[str, float]:
    """Seconds for each product and factorisation, the fastest way that we know of, without any memory that is new.

    The sites are taken in batches, as they must be to bound the memory; a batch is timed as often as it would occur.
    """
    rng = np.random.default_rng(0)
    M, B, D = size.M, min(size.N, BATCH), size.D
    L = np.asfortranarray(np.tril(rng.standard_normal((M, M)) / M, -1) + np.eye(M))
    K = np.asfortranarray(L @ L.T)
    Z, X = rng.random((M, D)), rng.random((B, D))
    within, batch, total = np.zeros((M, M)), np.zeros((M, B)), np.zeros((M, M), order="F")
    wide = np.zeros((B, M), order="F")

    def batches(function):
        return sum(seconds(function) for _ in range(round(size.N / B)))

    np.matmul(Z, X.T, out=batch), blas.dsyrk(1.0, wide, c=total, trans=1, overwrite_c=1)  # warm
    return {
        "product of Z with Z: 2 M^2 D": seconds(lambda: np.matmul(Z, Z.T, out=within)),
        "Cholesky of K_zz: M^3 / 3": seconds(
            lambda: scipy.linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        ),
        "products of Z with X: 2 N M D": batches(lambda: np.matmul(Z, X.T, out=batch)),
        "solves, W = L^-1 K_zx: N M^2": batches(lambda: blas.dtrsm(1.0, L, wide, side=1, overwrite_b=1)),
        "products with R, W^T R: N M^2": batches(lambda: blas.dtrmm(1.0, L, wide, side=1, lower=1, overwrite_b=1)),
        "pull-back, W diag(v) W^T: N M^2": batches(
            lambda: blas.dsyrk(1.0, wide, beta=1.0, c=total, trans=1, overwrite_c=1)
        ),
        "and times R: M^3": seconds(lambda: blas.dtrmm(1.0, L, total, side=1, lower=1, overwrite_b=1)),
    }


def unavoidable_for_kernels(size: Size) -> dict[str, float]:
    """What is added where kernels and inducing inputs are learnt."""
    rng = np.random.default_rng(0)
    M, B, D = size.M, min(size.N, BATCH), size.D
    A, W, X = rng.random((M, M)), rng.random((M, B)), rng.random((B, D))
    wide, narrow = np.zeros((M, B)), np.zeros((M, D))

    def batches(function):
        return sum(seconds(function) for _ in range(round(size.N / B)))

    return {
        "gradient of K_zx: 2 N M^2": batches(lambda: np.matmul(A, W, out=wide)),
        "products with X: 2 N M D": batches(lambda: np.matmul(W, X, out=narrow)),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Measure and print; the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=PAPER_SIZE.N, help="N (default: %(default)s)")
    parser.add_argument("--dimensions", type=int, default=PAPER_SIZE.D, help="D (default: %(default)s)")
    parser.add_argument("--inducing", type=int, default=PAPER_SIZE.M, help="M (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=PAPER_SIZE.S, help="S (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="measurements; the median counts (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="write the seconds to results.json too")
    chosen = parser.parse_args(arguments)
    size = Size(chosen.sites, chosen.dimensions, chosen.inducing, S=chosen.samples)
    if chosen.record and size != PAPER_SIZE:
        parser.error("--record goes with the paper's size")
    model = problem(size)
    problem(Size(200, 5, 20)).evaluate(ALL_BLOCKS)  # warm the libraries
    print(f"One bound and gradient, full Gaussian, logistic likelihood: {size}")
    products, further, whole, everything = [], [], [], []
    for _ in range(chosen.repeats):
        products.append(unavoidable(size))
        whole.append(seconds(lambda: model.evaluate(POSTERIOR)))
        further.append(unavoidable_for_kernels(size))
        everything.append(seconds(lambda: model.evaluate(ALL_BLOCKS)))

    def table(measured: list[dict[str, float]]) -> float:
        for name in measured[0]:
            print(f"  {name:36s} {statistics.median(m[name] for m in measured):8.2f} s")
        return statistics.median(sum(m.values()) for m in measured)

    needed = table(products)
    posterior = statistics.median(whole)
    print(f"  {'unavoidable, together':36s} {needed:8.2f} s")
    print(f"  {'bound and gradient of the posterior':36s} {posterior:8.2f} s, ratio {posterior / needed:.2f}")
    print(f"  {'on the CPU of the paper':36s} {PAPER_SECONDS:8.2f} s at N = 60,000, D = 784, M = 2,400")
    more = needed + table(further)
    all_blocks = statistics.median(everything)
    print(f"  {'unavoidable, together':36s} {more:8.2f} s")
    print(f"  {'gradient of kernels and inputs too':36s} {all_blocks:8.2f} s, ratio {all_blocks / more:.2f}")
    if chosen.record:
        record(HERE, entry(posterior, all_blocks))
    return {"posterior": posterior / needed, "all blocks": all_blocks / more}


def entry(posterior: float, all_blocks: float) -> dict[str, object]:
    """What results.json keeps."""
    paper = {"reference": PAPER_SECONDS, "source": "paper, its CPU", "judged": False}
    return {
        "experiment": "gradient_time",
        "command": "python tests/benchmarks/bound_and_gradient.py --record",
        "remark": f"One bound and gradient of a full Gaussian, {PAPER_SIZE}, on data of the same size. The time of "
        "the paper is from another machine; invgp ran on two cores. The benchmark also prints the time of the "
        "unavoidable matrix products.",
        "rows": [
            {"measure": "seconds", "setting": "gradient of the posterior", "ours": posterior, **paper},
            {
                "measure": "seconds",
                "setting": "gradient of posterior, kernels and inducing inputs",
                "ours": all_blocks,
                **paper,
            },
        ],
    }


if __name__ == "__main__":
    main()
