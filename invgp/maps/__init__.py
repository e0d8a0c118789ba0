"""Prediction of the posterior on lines, maps and volumes, from a posterior file alone."""
