#!/usr/bin/env bash
# Compute the posteriors and their figures from a fresh clone. `run.sh compare` compares them with an ensemble smoother.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
check_compare_arguments "the posterior of the profile" 600 "$@"
enter_case_study ${1:+iterative_ensemble_smoother}

[[ -f data/map.csv ]] || "$bin/python" make_survey.py
if [[ ${1:-} == compare ]]; then
    exec "$bin/python" ../compare_smoothers.py profile.toml "${@:2}"
fi
mkdir -p results
for name in profile contrast map; do
    "$bin/invgp" run "$name.toml"
    "$bin/invgp" plot "results/$name.nc" -o "results/$name.png"
done
"$bin/python" figure.py
