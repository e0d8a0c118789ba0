#!/usr/bin/env bash
# From a bare clone to the posterior and its figures. PYTHON names the interpreter that makes the environment.
set -euo pipefail

if (($#)); then
    echo "usage: run.sh   (it has no options)"
    [[ $1 == -h || $1 == --help ]] && exit 0
    exit 2
fi
command -v gmt > /dev/null || {
    echo "run.sh: there is no program 'gmt' here; on Debian and Ubuntu, apt-get install gmt." >&2
    exit 1
}

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
[[ -f data/profiles.csv ]] || "$venv/bin/python" make_survey.py
"$venv/bin/invgp" check valley.toml
"$venv/bin/invgp" run valley.toml -o results/valley.nc
"$venv/bin/python" accuracy.py
"$venv/bin/invgp" plot results/valley.nc
