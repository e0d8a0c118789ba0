#!/usr/bin/env bash
# From a bare clone to the resistivity volume and its figures. PYTHON names the interpreter that makes the environment.
set -euo pipefail

usage="usage: run.sh [--soundings N]

  --soundings N  of the synthetic survey (default: 10000)"

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

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
venv=$root/.venv

# Installing again is only needed when the dependencies have changed; without it the second run starts at once.
if [[ ! $venv/bin/invgp -nt $root/pyproject.toml ]]; then
    bash "$root/.ci/venv"
    touch "$venv/bin/invgp"
fi

cd -- "$here"
mkdir -p results
name=em_survey
[[ $soundings == 10000 ]] || name=em_survey_$soundings
[[ -f data/$name.csv ]] || "$venv/bin/python" make_survey.py --soundings "$soundings" --output "data/$name.csv"
"$venv/bin/invgp" check em_survey.toml --data "data/$name.csv"
"$venv/bin/invgp" run em_survey.toml --data "data/$name.csv" -o "results/$name.nc"
"$venv/bin/python" accuracy.py "results/$name.nc" --truth "data/${name}_truth.csv"
"$venv/bin/invgp" predict "results/$name.nc" --grid 50 --exceed "resistivity > 50 ohm m" -o "results/$name.map.nc"
"$venv/bin/invgp" plot "results/$name.map.nc"
