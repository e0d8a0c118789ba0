#!/usr/bin/env bash
# Run the numerical tests as other processors would: with the OpenBLAS kernels for each processor, with one and two
# threads, and with the vector instructions that NumPy would use there. Needs the .venv that check.sh creates.
# Arguments are passed to pytest and replace the default folders: tests/check_processors.sh tests/core -k whitening
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
[ -x "$bin/pytest" ] || {
  echo "check_processors.sh: .venv with the packages of the tests does not exist; create it with: bash .ci/venv --group test" >&2
  exit 2
}
(($#)) || set -- tests/core tests/estimator tests/forward_models tests/inference/field tests/likelihoods tests/maps

# Print the kernels that OpenBLAS uses for an OPENBLAS_CORETYPE; several processors may share kernels.
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
  # If this processor lacks the instructions, a signal ends the probe.
  kernels=$("$bin/python" -W ignore -c "$probe" 2>/dev/null) || kernels=
  if [[ -z $kernels || -n ${seen[$kernels]:-} ]]; then
    reason=${kernels:+"same kernels as ${seen[$kernels]:-}"}
    table+=$(printf '%-9s  %-9s  %7s  %s' "$processor" "${kernels:--}" - "not run: ${reason:-not supported by this processor}")$'\n'
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
