# Sourced by the game days: a local stack of its own with an engine that is a script, in a folder of its own, and agents that call it all the time.
# Each breaks one thing, says which alert would ring, and waits: whoever plays follows docs/runbook.md in another terminal, and ends this with Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/../.."
. .venv/bin/activate
export CLAW_HOME=${GAMEDAY_HOME:-$PWD/.claw/gameday} # emptied: never the CLAW_HOME of whoever plays
unset KAFKA_BOOTSTRAP_SERVERS
port=${PORT:-8000} engine_port=${ENGINE_PORT:-9000}
rm -rf "$CLAW_HOME"
mkdir -p "$CLAW_HOME"
own=()
leave() {
  trap - EXIT
  claw down > /dev/null 2>&1 || true
  for one in "${own[@]}"; do kill "$one" 2> /dev/null || true; done
  echo "The day is over; its folder is $CLAW_HOME."
}
trap leave EXIT
trap 'exit 0' INT TERM

aside() {  # a program of this script's own, with its output in a file
  local name=$1
  shift
  "$@" > "$CLAW_HOME/$name.log" 2>&1 &
  own+=($!)
  disown $!  # or bash says on the screen that it was killed
}

await() {  # until a command succeeds, a minute at most; $1 says what is waited for
  local what=$1 deadline=$((SECONDS + 60))
  shift
  until "$@" > /dev/null 2>&1; do
    ((SECONDS < deadline)) || { echo "gave up waiting for $what; see $CLAW_HOME/*.log" >&2; exit 1; }
    sleep .2
  done
}

stack() {  # broker, gateway, streams
  aside broker claw broker
  await "the broker" claw topics describe
  aside engine python examples/scripted_engine.py "$engine_port"
  local servers
  servers=$(grep -m 1 -x '[0-9.]*:[0-9]*' "$CLAW_HOME/broker.log")  # named: one of its own `claw up` would start again
  KAFKA_BOOTSTRAP_SERVERS=$servers CLAW_GATEWAY_UPSTREAMS=http://127.0.0.1:$engine_port claw up --port "$port"
}

call() {
  curl -sf -m 20 -o /dev/null -H 'content-type: application/json' "http://127.0.0.1:$port/episode-$1/v1/chat/completions" \
    -d '{"model": "any", "messages": [{"role": "user", "content": "Hello"}]}'
}

agents() {  # ten calls a second, whatever becomes of them
  local number=0
  while sleep .1; do call $((number++)) || true; done
}

rings() {
  cat <<END

  The pager rings: $1
  The stack's folder is $CLAW_HOME; in your terminal:  export CLAW_HOME=$CLAW_HOME; . .venv/bin/activate
  Follow docs/runbook.md#${1,,} until what it says under "It worked when" is so. Ctrl-C here ends the day.

END
  while sleep 1; do :; done
}
