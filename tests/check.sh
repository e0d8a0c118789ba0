#!/usr/bin/env bash
# Every check, from a bare clone: format, lint, types, import directions, tests. Arguments go to pytest.
# INVGP_VERSIONS=newest checks with the newest versions of all packages instead of those in .ci/constraints.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash .ci/venv --group test
bin=$PWD/.venv/bin
"$bin/ruff" format --check .
"$bin/ruff" check .
# Types and import directions are checked on the package as it installs. A stale build/ would leak into it.
rm -rf build
"$bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --target build/installed .
(
  cd build/installed
  "$bin/mypy" --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache --package invgp
  "$bin/lint-imports" --config ../../pyproject.toml --cache-dir ../../.import_linter_cache
)
# A file at a time to each core: tests of one file share what they make. Threads of BLAS would be more than there are cores.
OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1} "$bin/pytest" --numprocesses auto --dist loadfile --durations 25 "$@"
