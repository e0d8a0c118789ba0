"""Running simulators: batches, retries, failures, budgets, and pools of workers."""
