#!/usr/bin/env bash
# From a bare clone to the table and the figure. Options go to gprn.py. PYTHON names the interpreter that makes the environment.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
venv=$root/.venv

# Installing again is only needed when the dependencies have changed; without it the second run starts at once.
if [[ ! $venv/bin/invgp -nt $root/pyproject.toml ]]; then
    bash "$root/.ci/venv"
    touch "$venv/bin/invgp"
fi
exec "$venv/bin/python" "$here/gprn.py" "$@"
