#!/usr/bin/env bash
# Compute the posterior and its figures from a fresh clone. PYTHON selects the interpreter of a new environment.
set -euo pipefail

case ${1:-} in
    "") ;;
    -h | --help)
        echo "usage: run.sh   (it has no options)"
        exit 0
        ;;
    *)
        echo "run.sh: takes no arguments, was given '$1'." >&2
        exit 2
        ;;
esac
command -v gmt > /dev/null || {
    echo "run.sh: the program 'gmt' is not installed; on Debian and Ubuntu, run: apt-get install gmt" >&2
    exit 1
}

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study

mkdir -p results
[[ -f data/profiles.csv ]] || "$bin/python" make_survey.py
"$bin/invgp" check valley.toml
"$bin/invgp" run valley.toml -o results/valley.nc
"$bin/python" accuracy.py
"$bin/invgp" plot results/valley.nc
"$bin/python" figure.py
