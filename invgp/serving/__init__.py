"""An UM-Bridge 1.0 server for any simulator that invgp can run."""

from .model_server import ModelServer

__all__ = ["ModelServer"]
