# Functions for the run.sh of the case studies, which source this file.

# enter_case_study [MODULE ...]: create the virtual environment at the top of the repository if it does not exist or is out of
# date, change to the directory of run.sh, and set `bin` to the directory with the programs of the environment. The MODULEs are
# Python modules of the dependency group `case-studies` that the case study needs. PYTHON selects the interpreter of a new
# environment. INVGP_VERSIONS=newest installs the newest packages.
enter_case_study() {
    cd -- "$(dirname -- "${BASH_SOURCE[1]}")"
    local root versions
    root=$(cd ../.. && pwd)
    bin=$root/.venv/bin
    versions=$(cat "$root/.venv/versions" 2>/dev/null || echo tested)
    # Install again only if the dependencies have changed, so that a second run starts immediately.
    if [[ $bin/invgp -nt $root/pyproject.toml && $bin/invgp -nt $root/.ci/constraints.txt ]] &&
        [[ $versions == "${INVGP_VERSIONS:-tested}" ]] && has_modules "$@"; then
        return
    fi
    bash "$root/.ci/venv" ${1:+--group case-studies}
    touch "$bin/invgp"
}

# has_modules MODULE ...: whether the environment has all these Python modules.
has_modules() {
    (($# == 0)) ||
        "$bin/python" -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@"
}

# check_compare_arguments POSTERIOR STEPS "$@": check the arguments of a run.sh that takes none, or `compare` followed by options of
# compare_smoothers.py; print the help for -h and --help. POSTERIOR is what is compared, in words, and STEPS is the default
# number of steps of a chain; both appear in the help.
check_compare_arguments() {
    local what=$1 steps=$2 argument
    shift 2
    for argument in "$@"; do
        if [[ $argument == -h || $argument == --help ]]; then
            echo "usage: run.sh [compare [options of compare_smoothers.py]]

  compare  compare $what with Markov chains and an ensemble smoother; takes minutes
             --runs N [N ...]  largest numbers of simulator runs (default: 100 200 500 1000)
             --seeds N         number of seeds for each number of runs (default: 2)
             --steps N         number of steps of each chain (default: $steps)
             --record          also write the means over the seeds to results.json"
            exit 0
        fi
    done
    case ${1:-} in
        "" | compare) return ;;
        -*) echo "run.sh: '$1' is not an option; run.sh --help lists them." >&2 ;;
        *) echo "run.sh: the only valid argument is 'compare', was '$1'." >&2 ;;
    esac
    exit 2
}
