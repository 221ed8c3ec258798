#!/usr/bin/env bash
# Format, lint, strict types and import contracts; format of the pages' JavaScript and CSS, lint and types of the JavaScript; needs the environment that claw/bootstrap.py makes. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
export DENO_DIR=.deno_cache  # our pages; nothing is fetched
.venv/bin/deno fmt --check --quiet
.venv/bin/deno lint --quiet
.venv/bin/deno check --quiet consumers/*/static/*.js

echo "Lines of Python per room (schemas/events.py, which is generated, left out):"
git ls-files -z -- '*.py' ':!schemas/events.py' | xargs -0 wc -l | awk '
  $2 == "total" { next }
  { split($2, path, "/"); room = path[1]; lines[room] += $1 }
  room !~ /^(tests|bench|examples|docs)$/ { source += $1 }
  END {
    for (room in lines) printf "%7d %s\n", lines[room], room | "sort -rn"
    close("sort -rn")
    printf "%7d in all rooms, without tests, bench and examples\n", source
  }'

echo "Lines of the pages' own JavaScript and CSS:"
git ls-files -z -- 'consumers/*/static/*' ':!consumers/web/static/vendor' | xargs -0 wc -l | awk '{ split($2, path, "/"); lines[path[2]] += $1 }
  END { for (page in lines) if (page != "") printf "%7d %s\n", lines[page], page }'
