#!/usr/bin/env bash
# Build the C program and generate the synthetic survey. CC selects the compiler, and PYTHON an interpreter that has invgp.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
source_file=$root/forward_models/two_way_times.c
program=$here/build/two_way_times

python=${PYTHON:-python3}
if [[ -z ${PYTHON:-} && -x $root/.venv/bin/python ]]; then
    python=$root/.venv/bin/python
fi

if [[ ! -x $program || $source_file -nt $program ]]; then
    mkdir -p "$here/build"
    "${CC:-cc}" -std=c99 -O2 -o "$program" "$source_file"
    echo "Built $program."
fi

if [[ ! -f $here/data/synthetic.csv || ! -f $here/data/synthetic_well.csv ]]; then
    "$python" "$here/make_survey.py"
fi
