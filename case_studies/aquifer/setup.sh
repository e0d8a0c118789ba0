#!/usr/bin/env bash
# Build the program and generate the survey. CC selects the compiler, and PYTHON an interpreter that has invgp.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
mkdir -p "$here/build"
"${CC:-cc}" -std=c99 -O2 -o "$here/build/steady_heads" "$root/forward_models/steady_heads.c" -lm
"${PYTHON:-$root/.venv/bin/python}" "$here/make_survey.py" "$here/build/steady_heads"
