"""The loop ask -> evaluate -> tell, from a problem to its posterior."""
