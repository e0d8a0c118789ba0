"""How much memory a computation may take, whatever the numbers of sites and samples are."""

MEMORY_BUDGET = 512 * 2**20  # bytes of arrays that are kept or temporary
# Bytes of temporary arrays of a batch: each small enough that the allocator reuses the memory of the batch before, for
# memory that is new costs as much as the arithmetic; large enough that matrix products run at full speed.
BATCH_BUDGET = 144 * 2**20
BATCH_SITES = 2048  # at the most: products are no faster with more, and what is done to each sample leaves the cache
