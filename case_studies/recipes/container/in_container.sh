#!/bin/sh
# Run a command in a container, in the current directory. ENGINE is docker, podman or apptainer; without it, the command runs here.
case ${ENGINE:-none} in
docker | podman) exec "$ENGINE" run --rm --network none --user "$(id -u):$(id -g)" --volume "$PWD:/run" --workdir /run "$IMAGE" "$@" ;;
apptainer) exec apptainer exec --containall --bind "$PWD:/run" --pwd /run "$IMAGE" "$@" ;;
none) exec "$@" ;;
*) echo "ENGINE must be docker, podman or apptainer, was $ENGINE" >&2 && exit 2 ;;
esac
