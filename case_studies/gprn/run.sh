#!/usr/bin/env bash
# From a bare clone to the table and the figure. Options go to gprn.py. PYTHON names the interpreter that makes the environment.
set -euo pipefail

source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study

script=$PWD/gprn.py
cd -- "$OLDPWD" # which the path of --sarcos may be relative to
exec "$bin/python" "$script" "$@"
