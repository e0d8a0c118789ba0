#!/usr/bin/env bash
# Serve the model of tesseract_api.py on this machine, without a container, until the script is ended: serve.sh [PORT].
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
runtime=${TESSERACT_RUNTIME:-$PWD/.venv/bin/tesseract-runtime}
export TESSERACT_API_PATH=$PWD/tesseract_api.py
cd "$(mktemp -d)" # the server leaves a directory for each run
exec "$runtime" serve --port "${1:-8765}"
