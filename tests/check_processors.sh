#!/usr/bin/env bash
# The numerical tests as other processors would run them: with the kernels that OpenBLAS has for each, with one and two
# threads, and with the vector instructions that NumPy's own loops would find there. It needs .venv as check.sh makes it.
# Arguments go to pytest, in place of the folders below: tests/check_processors.sh tests/core -k whitening
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
[ -x "$bin/pytest" ] || {
  echo "check_processors.sh: there is no environment with the tests' packages yet; bash .ci/venv --group test makes it." >&2
  exit 2
}
(($#)) || set -- tests/core tests/estimator tests/forward_models tests/inference/field tests/likelihoods tests/maps

# Which kernels are in use when OPENBLAS_CORETYPE asks for some; it may be fewer than there are names for.
probe='
import numpy as np, scipy.linalg, threadpoolctl
matrix = np.eye(256) + 1.0 / 256
scipy.linalg.cholesky(matrix @ matrix)
print(*sorted({one["architecture"] for one in threadpoolctl.threadpool_info() if one["internal_api"] == "openblas"}))
'
declare -A lacks=(
  [Nehalem]="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
  [Haswell]="X86_V4 AVX512_ICL AVX512_SPR"
  [Zen]="X86_V4 AVX512_ICL AVX512_SPR"
  [SkylakeX]=""
)
declare -A seen=()
failed=0
table=$'\nprocessor  kernels    threads  tests\n'
for processor in Nehalem Haswell Zen SkylakeX; do
  export OPENBLAS_CORETYPE=$processor NPY_DISABLE_CPU_FEATURES=${lacks[$processor]}
  # Instructions that this processor lacks end the probe by a signal.
  kernels=$("$bin/python" -W ignore -c "$probe" 2>/dev/null) || kernels=
  if [[ -z $kernels || -n ${seen[$kernels]:-} ]]; then
    reason=${kernels:+"the kernels of ${seen[$kernels]:-}"}
    table+=$(printf '%-9s  %-9s  %7s  %s' "$processor" "${kernels:--}" - "not run: ${reason:-this processor cannot}")$'\n'
    continue
  fi
  seen[$kernels]=$processor
  for threads in 1 2; do
    echo "== $processor: $kernels kernels, $threads thread(s) =="
    outcome=passed
    OPENBLAS_NUM_THREADS=$threads "$bin/pytest" --quiet --numprocesses auto --dist loadfile "$@" || {
      outcome=failed
      failed=1
    }
    table+=$(printf '%-9s  %-9s  %7s  %s' "$processor" "$kernels" "$threads" "$outcome")$'\n'
  done
done
echo "$table"
exit "$failed"
