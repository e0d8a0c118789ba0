"""Execution of simulator runs: batches, retries, failures, budgets and pools of workers."""
