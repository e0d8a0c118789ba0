#!/usr/bin/env bash
# Compute the resistivity volume and its figures from a fresh clone. PYTHON selects the interpreter of a new environment.
set -euo pipefail

usage="usage: run.sh [--soundings N]

  --soundings N  number of soundings of the synthetic survey (default: 10000)"

fail() {
    echo "run.sh: $1" >&2
    exit 2
}

soundings=10000
while (($#)); do
    case $1 in
        --soundings)
            (($# > 1)) || fail "--soundings needs a number."
            soundings=$2
            shift 2
            ;;
        -h | --help)
            echo "$usage"
            exit 0
            ;;
        *)
            fail "'$1' is not an option; run.sh --help lists them."
            ;;
    esac
done
[[ $soundings =~ ^[1-9][0-9]*$ ]] || fail "--soundings must be a whole number above 0, but it is '$soundings'."

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study

mkdir -p results
name=em_survey
[[ $soundings == 10000 ]] || name=em_survey_$soundings
[[ -f data/$name.csv ]] || "$bin/python" make_survey.py --soundings "$soundings" --output "data/$name.csv"
"$bin/invgp" check em_survey.toml --data "data/$name.csv"
"$bin/invgp" run em_survey.toml --data "data/$name.csv" -o "results/$name.nc"
"$bin/python" accuracy.py "results/$name.nc" --truth "data/${name}_truth.csv"
"$bin/invgp" predict "results/$name.nc" --grid 50 --exceed "resistivity > 50 ohm m" -o "results/$name.map.nc"
"$bin/invgp" plot "results/$name.map.nc"
"$bin/python" figure.py "$name"
