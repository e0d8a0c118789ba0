#!/usr/bin/env bash
# From a bare clone to the tables. PYTHON names the interpreter that makes the environment.
set -euo pipefail

usage="usage: run.sh [new_york | generated] [options of flights.py]   (both sets if none is named)"
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
        echo "run.sh: the set must be 'new_york' or 'generated', but it is '$1'." >&2
        exit 2
        ;;
esac

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study nycflights13

for set in "${sets[@]}"; do
    "$bin/python" flights.py "$set" "$@"
done
