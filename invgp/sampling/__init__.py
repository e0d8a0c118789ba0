"""Samples from the exact posterior of a problem, with the simulator itself as the target."""
