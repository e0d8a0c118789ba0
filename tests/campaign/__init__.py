"""The fault campaign: faulty runs, signals, moved projects and damaged inputs, counted in one table.

`python tests/campaign` runs all of it, `python tests/campaign --small` the part that the test suite runs.
"""
