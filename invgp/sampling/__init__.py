"""Samples from the exact posterior of a problem, by Markov chain Monte Carlo."""
