# Sourced by each run.sh. `enter_case_study [MODULE ...]` makes the virtual environment at the top of the repository if need be,
# goes to the folder of run.sh, and sets `bin`, the folder of the environment's programs. MODULE is one of the dependency group
# `case-studies`. PYTHON names the interpreter that makes the environment.
enter_case_study() {
    cd -- "$(dirname -- "${BASH_SOURCE[1]}")"
    local root
    root=$(cd ../.. && pwd)
    bin=$root/.venv/bin
    # Installing again is only needed when the dependencies have changed; without it the second run starts at once.
    if [[ $bin/invgp -nt $root/pyproject.toml ]] && has_modules "$@"; then
        return
    fi
    bash "$root/.ci/venv" ${1:+--group case-studies}
    touch "$bin/invgp"
}

has_modules() {
    (($# == 0)) ||
        "$bin/python" -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@"
}
