#!/usr/bin/env bash
# Compute the table and the figure from a fresh clone. Options are passed to gprn.py. PYTHON selects the interpreter of a new environment.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study

script=$PWD/gprn.py
cd -- "$OLDPWD" # the path of --sarcos may be relative to it
exec "$bin/python" "$script" "$@"
