#!/usr/bin/env bash
# Compute the posterior of the synthetic survey and its figure from a fresh clone. `run.sh contributions` inverts the survey with
# each kind of data.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
case ${1:-} in
    "" | contributions) ;;
    -h | --help)
        echo "usage: run.sh [contributions [--runs N]]"
        exit 0
        ;;
    *)
        echo "run.sh: the only valid argument is 'contributions', was '$1'." >&2
        exit 2
        ;;
esac
enter_case_study pandas

[[ -f data/truth.csv ]] || "$bin/python" make_survey.py
mkdir -p results
if [[ ${1:-} == contributions ]]; then
    exec "$bin/python" contributions.py "${@:2}"
fi
for name in twin twin_rocks; do
    "$bin/invgp" run "$name.toml"
    "$bin/invgp" plot "results/$name.nc" -o "results/$name.png"
done
"$bin/python" figure.py
