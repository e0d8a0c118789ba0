"""How many files this process may have open at once."""

from __future__ import annotations

import resource

from invgp.errors import SystemLimitError

FEWEST = 64  # of one worker: libraries, streams, the ledger, a program's files
PER_WORKER = 10  # of a worker process: pipes to and from it
USUAL = 1024


def reserve_open_files(workers: int = 1) -> None:
    """Raise the soft limit of open files to what is usual, or to what so many workers need, where it is lower.

    Parameters
    ----------
    workers : int
        Simulator runs at once.

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
