#!/usr/bin/env bash
# Invert a small survey with a simulator of another package: run.sh NAME, where NAME is a directory beside this script.
# The package and invgp are installed in an environment of their own, NAME/.venv, because packages can exclude each other.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
name=${1:-}
if [[ -z $name || ! -f $name/survey.toml ]]; then
    echo "usage: run.sh NAME, where NAME is one of: $(for recipe in */survey.toml; do printf '%s ' "${recipe%/*}"; done)" >&2
    exit 2
fi
cd "$name"
if [[ ! -x .venv/bin/invgp ]]; then
    "${PYTHON:-python3}" -m venv .venv
    packages=("$name")
    [[ ! -f requirements.txt ]] || packages=(--requirement requirements.txt)
    .venv/bin/python -m pip install --quiet --disable-pip-version-check ../../.. "${packages[@]}"
fi
if [[ -f serve.sh ]]; then
    bash serve.sh >server.log 2>&1 &
    trap 'kill "$!"' EXIT
fi
export OPENBLAS_NUM_THREADS=1
.venv/bin/python simulator.py
.venv/bin/invgp check survey.toml
.venv/bin/invgp run survey.toml
.venv/bin/invgp plot posterior.nc
