"""The simulator as a function for a sampler: any share of its runs may fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from invgp.execution.pools import Pool
from invgp.execution.simulator import Batch, Simulator, TooManyFailures
from invgp.ledger import Recorder
from invgp.problem import Floats, Problem
from invgp.progress import Monitor


@dataclass
class TolerantSimulator:
    """The simulator of a problem, whose failed runs do not stop a batch.

    Parameters
    ----------
    simulator : Simulator
    calls : int
        Number of calls so far, for the labels of runs.
    """

    simulator: Simulator
    calls: int = 0

    @staticmethod
    def of(
        problem: Problem,
        directory: Path,
        pool: Pool,
        monitor: Monitor,
        recorders: Mapping[str, Recorder] | None = None,
    ) -> TolerantSimulator:
        """Build from a problem, with runs in a directory and in the ledgers of its simulators, by source."""
        first, *others = [part.name for part in problem.parts if not part.direct]
        known = recorders or {}
        tolerant = replace(problem, inference=problem.inference.model_copy(update={"max_failed_share": 1.0}))
        return TolerantSimulator(
            Simulator(
                tolerant,
                directory,
                pool,
                monitor,
                recorder=known.get(first),
                source_recorders={name: known[name] for name in others if name in known},
            )
        )

    def run_sites(self, f: Floats, sites: NDArray[np.intp]) -> Batch:
        """Run a site model at latents f (S, B, Q) of sites (B,).

        Parameters
        ----------
        f : array, shape (S, B, Q)
            Latents, on the scale of the processes.
        sites : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        Batch
        """
        self.calls += 1
        try:
            return self.simulator.run(f, f"chains{self.calls}", sites)
        except TooManyFailures:
            if len(f) == 1:
                return Batch.all_failed(1, len(sites), self.simulator.problem.noise_std.shape[1])
        parts = [self.run_sites(one[None], sites) for one in f]  # so that the others are not lost
        return Batch(np.concatenate([p.outputs for p in parts]), np.concatenate([p.valid for p in parts]))

    def run_fields(self, f: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Run a field model at latents f (S, G, Q): outputs (S, N, P), and which runs (S,) succeeded.

        Parameters
        ----------
        f : array, shape (S, G, Q)
            Latents, on the scale of the processes.

        Returns
        -------
        outputs : array, shape (S, N, P)
        valid : array of bool, shape (S,)
        """
        self.calls += 1
        try:
            outputs, valid, _ = self.simulator.run_fields(f, f"chains{self.calls}")
            return outputs, valid
        except TooManyFailures:
            if len(f) == 1:
                return np.full((1, *self.simulator.problem.noise_std.shape), np.nan), np.zeros(1, dtype=bool)
        parts = [self.run_fields(one[None]) for one in f]
        return np.concatenate([outputs for outputs, _ in parts]), np.concatenate([valid for _, valid in parts])
