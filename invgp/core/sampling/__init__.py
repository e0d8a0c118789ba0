"""Samplers of a log density with a gradient, for many chains at once, and statistics of their draws."""
