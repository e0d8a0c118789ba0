#!/usr/bin/env bash
# Compute the tables from a fresh clone. PYTHON selects the interpreter of a new environment.
set -euo pipefail

usage="usage: run.sh [new_york | generated] [options of flights.py]   (default: both data sets)"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "$usage"
    exit 0
fi
case ${1:-} in
    new_york | generated)
        sets=("$1")
        shift
        ;;
    "" | --*) sets=(new_york generated) ;;
    *)
        echo "run.sh: the data set must be 'new_york' or 'generated', was '$1'." >&2
        exit 2
        ;;
esac

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study nycflights13

for set in "${sets[@]}"; do
    "$bin/python" flights.py "$set" "$@"
done
