"""Answers about a posterior that need no new simulator run: other priors and data, evidence, the next measurement."""
