"""Comparison with reference chains, and calibration on simulated surveys."""
