"""Memory limits of a computation, independent of the numbers of sites and samples."""

MEMORY_BUDGET = 512 * 2**20  # bytes of cached and temporary arrays
# Bytes of temporary arrays of a batch: small enough that the allocator reuses the memory of the previous batch (the
# first use of new memory costs as much as the arithmetic), large enough that matrix products run at full speed.
BATCH_BUDGET = 144 * 2**20
BATCH_SITES = 2048  # largest batch: larger ones exceed the processor cache and do not speed up matrix products
