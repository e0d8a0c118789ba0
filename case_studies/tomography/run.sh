#!/usr/bin/env bash
# Compute the posterior and its figures from a fresh clone. `run.sh compare` compares it with an ensemble smoother.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
check_compare_arguments "the posterior of small.toml" 600 "$@"
enter_case_study ${1:+iterative_ensemble_smoother}

[[ -f data/survey.csv ]] || "$bin/python" make_survey.py
if [[ ${1:-} == compare ]]; then
    exec "$bin/python" ../compare_smoothers.py small.toml "${@:2}"
fi
mkdir -p results
"$bin/invgp" check tomography.toml
for name in tomography straight; do
    "$bin/invgp" run "$name.toml"
    "$bin/python" figure.py "$name"
done
