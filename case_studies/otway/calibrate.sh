#!/usr/bin/env bash
# Simulate and invert 200 surveys of 20 sites, and count how often the intervals contain the truth. Arguments are passed to
# `invgp calibrate`. PYTHON selects an interpreter that has invgp; the default is that of .venv, which is created if needed.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if [[ ! -x $(command -v "$python") ]]; then
    bash "$root/.ci/venv"
fi

cd -- "$here"
if [[ ! -f data/calibration.csv ]]; then
    "$python" make_survey.py --sites 20 --output data/calibration.csv
fi
exec "$python" -m invgp calibrate calibration.toml --surveys 200 -o results/calibration.nc "$@"
