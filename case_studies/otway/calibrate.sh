#!/usr/bin/env bash
# Simulate and invert 200 surveys of 20 sites, and tell how often intervals hold the truth. Arguments go to
# `invgp calibrate`. PYTHON names the interpreter that has invgp; by default it is that of .venv, as run.sh makes it.
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
