#!/usr/bin/env bash
# Regenerate the figures of the gallery: bash docs/make_gallery.sh, with invgp installed. The figures of the Otway line need the
# posterior of case_studies/otway/run.sh, and the figure of its report needs Chromium.
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

otway=$figures/../../case_studies/otway/results/otway.nc
[ -f "$otway" ] || exit 0
invgp plot "$otway" --kind section --kind fit --kind draws --kind correlation -o "$figures/otway.png" --dpi 200
chromium=$(command -v chromium || command -v google-chrome) || exit 0
invgp report --quiet "$otway" -o "$work/report.html"
"$chromium" --headless --no-sandbox --hide-scrollbars --window-size=1000,940 --screenshot="$figures/report.png" "file://$work/report.html"
