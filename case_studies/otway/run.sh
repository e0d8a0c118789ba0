#!/usr/bin/env bash
# Compute the posterior and its figures from a fresh clone. PYTHON selects the interpreter of a new environment.
set -euo pipefail

usage="usage: run.sh [--data PATH] [--model MODEL] [--compare [--published FOLDER]]

  --data PATH    invert these two-way times under the prior of the paper (paper_prior.toml)
  --model MODEL  forward model of the synthetic line (default: python):
                   python          the Python function
                   c               the C program, started for each run
                   c_persistent    the C program, started once for all runs
                   c_batched       the C program, which processes a table of runs
  --compare      also compare the posterior of the paper and the coupled one with converged chains; takes minutes
  --published FOLDER  also draw the published posteriors (published_savigp.csv, published_mcmc.csv)"

fail() {
    echo "run.sh: $1" >&2
    exit 2
}

models="'python', 'c', 'c_persistent' or 'c_batched'"
data=
model=
compare=
published=
while (($#)); do
    case $1 in
        --data)
            (($# > 1)) || fail "--data needs the path of a CSV file."
            data=$2
            shift 2
            ;;
        --model)
            (($# > 1)) || fail "--model needs $models."
            model=$2
            shift 2
            ;;
        --compare)
            compare=yes
            shift
            ;;
        --published)
            (($# > 1)) || fail "--published needs the path of a folder."
            published=$2
            shift 2
            ;;
        -h | --help)
            echo "$usage"
            exit 0
            ;;
        *)
            fail "'$1' is not an option; run.sh --help lists them."
            ;;
    esac
done

case $model in
    "" | python | c | c_persistent | c_batched) ;;
    *) fail "--model must be $models, was '$model'." ;;
esac
if [[ -n $data ]]; then
    [[ $model != c* ]] || fail "--data runs the Python model; omit --model $model."
    [[ -f $data ]] || fail "the file '$data' does not exist."
    data=$(cd -- "$(dirname -- "$data")" && pwd)/$(basename -- "$data")
fi
if [[ -n $published ]]; then
    [[ -n $compare && -n $data ]] || fail "--published needs --compare and --data."
    [[ -f $published/published_savigp.csv ]] || fail "there is no 'published_savigp.csv' in '$published'."
    published=$(cd -- "$published" && pwd)
fi

start=$PWD
source "$(dirname -- "${BASH_SOURCE[0]}")/../environment.sh"
enter_case_study
PYTHON=$bin/python ./setup.sh

mkdir -p results
# The commands run in the directory of the user, so that the printed paths can be opened from there.
study=$("$bin/python" -c 'import os, sys; print(os.path.relpath(sys.argv[1], sys.argv[2]))' "$PWD" "$start")
cd -- "$start"
name=otway
arguments=()
if [[ -n $data ]]; then
    name=paper_prior
    arguments=(--data "$data")
elif [[ $model == c* ]]; then
    name=otway_$model
fi
# Bash before 4.4 treats an empty array as unset.
"$bin/invgp" check "$study/$name.toml" ${arguments[@]+"${arguments[@]}"}
"$bin/invgp" run "$study/$name.toml" ${arguments[@]+"${arguments[@]}"} -o "$study/results/$name.nc"
"$bin/invgp" plot "$study/results/$name.nc"
if [[ -n $compare ]]; then
    "$bin/python" "$study/accuracy.py" ${arguments[@]+"${arguments[@]}"} ${published:+--published "$published"}
fi
