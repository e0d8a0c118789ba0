#!/usr/bin/env bash
# Compute the posterior and its figures from a fresh clone. `run.sh compare` compares it with an ensemble smoother.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
check_compare_arguments "the posterior" 1200 "$@"
enter_case_study ${1:+iterative_ensemble_smoother}

[[ -f data/aquifer.pst ]] || PYTHON=$bin/python bash setup.sh
if [[ ${1:-} == compare ]]; then
    exec "$bin/python" ../compare_smoothers.py aquifer_python.toml --steps 1200 "${@:2}"
fi
"$bin/invgp" check aquifer.toml
"$bin/invgp" run aquifer.toml
"$bin/invgp" plot results/aquifer.nc -o results/aquifer.png
"$bin/python" figure.py
