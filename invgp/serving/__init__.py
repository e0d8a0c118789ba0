"""Offer any simulator that invgp can run to others, as an UM-Bridge 1.0 server."""

from .model_server import ModelServer

__all__ = ["ModelServer"]
