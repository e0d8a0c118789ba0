#!/usr/bin/env bash
# From a bare clone to the posterior and its figures. PYTHON names the interpreter that makes the environment.
set -euo pipefail

usage="usage: run.sh [--data PATH] [--model python|c]

  --data PATH        invert these two-way times under the prior of the paper (paper_prior.toml)
  --model python|c   forward model of the synthetic line: the Python function or the C program (default: python)"

fail() {
    echo "run.sh: $1" >&2
    exit 2
}

data=
model=
while (($#)); do
    case $1 in
        --data)
            (($# > 1)) || fail "--data needs the path of a CSV file."
            data=$2
            shift 2
            ;;
        --model)
            (($# > 1)) || fail "--model needs 'python' or 'c'."
            model=$2
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
    "" | python | c) ;;
    *) fail "--model must be 'python' or 'c', but it is '$model'." ;;
esac
if [[ -n $data ]]; then
    [[ $model != c ]] || fail "--data runs the Python model; leave --model c out."
    [[ -f $data ]] || fail "the file '$data' does not exist."
    data=$(cd -- "$(dirname -- "$data")" && pwd)/$(basename -- "$data")
fi

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
venv=$root/.venv

# Installing again is only needed when the dependencies have changed; without it the second run starts at once.
if [[ ! $venv/bin/invgp -nt $root/pyproject.toml ]]; then
    bash "$root/.ci/venv"
    touch "$venv/bin/invgp"
fi

PYTHON=$venv/bin/python "$here/setup.sh"

cd -- "$here"
mkdir -p results
name=otway
arguments=()
if [[ -n $data ]]; then
    name=paper_prior
    arguments=(--data "$data")
elif [[ $model == c ]]; then
    name=otway_c
fi
# Bash before 4.4 takes an empty array for an unset one, hence the guard.
"$venv/bin/invgp" check "$name.toml" ${arguments[@]+"${arguments[@]}"}
"$venv/bin/invgp" run "$name.toml" ${arguments[@]+"${arguments[@]}"} -o "results/$name.nc"
"$venv/bin/invgp" plot "results/$name.nc"
