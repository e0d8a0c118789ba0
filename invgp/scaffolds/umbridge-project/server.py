"""Serve the model of this project with UM-Bridge until Ctrl-C. Usage: python3 server.py [PORT].

This server uses invgp. You can use any UM-Bridge server instead, such as `umbridge.serve_models` in Python or a
container.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from invgp.adapters import CallableModel, Quantity
from invgp.serving import ModelServer

MODEL = CallableModel(
    function="simulator:valley",
    inputs=(Quantity("thickness", "m"), Quantity("velocity", "m s-1")),
    outputs=(Quantity("resonance", "Hz"), Quantity("anomaly", "m s-2")),
    search_path=Path(__file__).parent,
)


def main() -> None:
    """Serve the model until Ctrl-C."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 4242
    with TemporaryDirectory() as scratch, ModelServer(MODEL, Path(scratch), port=port) as server:
        print(f"Serving {MODEL.name!r} at {server.url}; press Ctrl-C to stop", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
