#!/usr/bin/env bash
# From a bare clone to the posterior and its figures; `run.sh compare` sets it beside an ensemble smoother.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
compare_or_nothing "the posterior of small.toml" 600 "$@"
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
