# Sourced by each run.sh. `enter_case_study [MODULE ...]` makes the virtual environment at the top of the repository if need be,
# goes to the folder of run.sh, and sets `bin`, the folder of the environment's programs. MODULE is one of the dependency group
# `case-studies`. PYTHON names the interpreter that makes the environment; INVGP_VERSIONS=newest takes the newest packages.
enter_case_study() {
    cd -- "$(dirname -- "${BASH_SOURCE[1]}")"
    local root versions
    root=$(cd ../.. && pwd)
    bin=$root/.venv/bin
    versions=$(cat "$root/.venv/versions" 2>/dev/null || echo tested)
    # Installing again is only needed when the dependencies have changed; without it the second run starts at once.
    if [[ $bin/invgp -nt $root/pyproject.toml && $bin/invgp -nt $root/.ci/constraints.txt ]] &&
        [[ $versions == "${INVGP_VERSIONS:-tested}" ]] && has_modules "$@"; then
        return
    fi
    bash "$root/.ci/venv" ${1:+--group case-studies}
    touch "$bin/invgp"
}

has_modules() {
    (($# == 0)) ||
        "$bin/python" -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@"
}

# `compare_or_nothing WHAT STEPS "$@"`: of a run.sh whose only argument is `compare`, with options of compare_smoothers.py, whose
# chains have so many steps by default. WHAT is set beside others.
compare_or_nothing() {
    local what=$1 steps=$2 argument
    shift 2
    for argument in "$@"; do
        if [[ $argument == -h || $argument == --help ]]; then
            echo "usage: run.sh [compare [options of compare_smoothers.py]]

  compare  set $what beside chains and an ensemble smoother instead: minutes
             --runs N [N ...]  of the simulator, at the most (default: 100 200 500 1000)
             --seeds N         for each number of runs (default: 2)
             --steps N         of each chain (default: $steps)
             --record          write the means over the seeds to results.json too"
            exit 0
        fi
    done
    case ${1:-} in
        "" | compare) return ;;
        -*) echo "run.sh: '$1' is not an option; run.sh --help lists them." >&2 ;;
        *) echo "run.sh: the argument must be 'compare' or left out, but it is '$1'." >&2 ;;
    esac
    exit 2
}
