"""Limit of the number of open files of this process."""

from __future__ import annotations

import resource

from invgp.errors import SystemLimitError

FEWEST = 64  # for one worker: libraries, streams, ledger and files of a program
PER_WORKER = 10  # for each further worker process: pipes
USUAL = 1024


def reserve_open_files(workers: int = 1) -> None:
    """Raise the soft limit of open files to a usual value, or to the number that the workers need.

    Parameters
    ----------
    workers : int
        Number of simulator runs at the same time.

    Raises
    ------
    SystemLimitError
        The hard limit is too low.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FEWEST + PER_WORKER * (workers - 1)
    wanted = max(USUAL, needed)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if wanted > now:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if wanted < needed:
        what = f" for {workers:,} workers" if workers > 1 else ""
        raise SystemLimitError(
            f"the limit of open files must be at least {needed:,}{what}, was {wanted:,}: raise it by "
            f"`ulimit -n {max(USUAL, needed)}`"
        )
