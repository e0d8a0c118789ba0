"""Draws from the exact posterior of a problem, by Markov chains."""
