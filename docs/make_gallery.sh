#!/usr/bin/env bash
# The figures of the gallery's projects, made anew: bash docs/make_gallery.sh, with invgp installed.
set -euo pipefail
figures=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/figures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for kind in python executable pest umbridge; do
  invgp init --quiet "$kind" "$work/$kind"
  cd "$work/$kind"
  if [ "$kind" = umbridge ]; then
    python3 server.py >/dev/null &
    server=$!
    trap 'kill "$server"; rm -rf "$work"' EXIT
    until (exec 3<>/dev/tcp/127.0.0.1/4242) 2>/dev/null; do sleep 0.2; done
  fi
  invgp run --quiet survey.toml
  figure=section
  [ "$kind" = pest ] && figure=map
  invgp plot posterior.nc --kind "$figure" -o "$figures/$kind.png" --dpi 150
done
