#!/usr/bin/env bash
# From a bare clone to the posteriors and their figures; `run.sh compare` sets them beside an ensemble smoother.
set -euo pipefail

usage="usage: run.sh [compare [options of compare_smoothers.py]]

  compare  set the posterior of the profile beside chains and an ensemble smoother instead: minutes
             --runs N [N ...]  of the simulator, at the most (default: 100 200 500 1000)
             --seeds N         for each number of runs (default: 2)
             --steps N         of each chain (default: 600)
             --record          write the means over the seeds to results.json too"

fail() {
    echo "run.sh: $1" >&2
    exit 2
}

for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
        echo "$usage"
        exit 0
    fi
done
case ${1:-} in
    "" | compare) ;;
    -*) fail "'$1' is not an option; run.sh --help lists them." ;;
    *) fail "the argument must be 'compare' or left out, but it is '$1'." ;;
esac

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study

[[ -f data/map.csv ]] || "$bin/python" make_survey.py
if [[ ${1:-} == compare ]]; then
    "$bin/python" -m pip install --quiet --disable-pip-version-check iterative_ensemble_smoother
    exec "$bin/python" ../compare_smoothers.py profile.toml "${@:2}"
fi
mkdir -p results
for name in profile contrast map; do
    "$bin/invgp" run "$name.toml"
    "$bin/invgp" plot "results/$name.nc" -o "results/$name.png"
done
"$bin/python" figure.py
