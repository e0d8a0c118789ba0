#!/usr/bin/env bash
# Create .venv and run all checks: format, lint, types, import directions, tests. Arguments are passed to pytest.
# INVGP_VERSIONS=newest uses the newest versions of all packages instead of those in .ci/constraints.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash .ci/venv --group test
bin=$PWD/.venv/bin
"$bin/ruff" format --check .
"$bin/ruff" check .
# Types and import directions are checked on the installed package. Files of an earlier build would be installed too.
rm -rf build
"$bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --target build/installed .
(
  cd build/installed
  "$bin/mypy" --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache --package invgp
  "$bin/lint-imports" --config ../../pyproject.toml --cache-dir ../../.import_linter_cache
)
# Each process runs whole test files, because the tests of a file share fixtures. One BLAS thread per process is enough.
OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1} "$bin/pytest" --numprocesses auto --dist loadfile --durations 25 "$@"
