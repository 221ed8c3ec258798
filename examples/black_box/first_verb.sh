#!/bin/sh
# The smallest agent: answers the first observation of its task with one call. Needs curl and jq.
#   claw agents run --command 'sh examples/black_box/first_verb.sh' --reward examples/black_box/rewards.py:score …
set -eu
reply=$(jq --arg model "$OPENAI_MODEL" --argjson temperature "${CLAW_TEMPERATURE:-1}" '{
    model: $model, temperature: $temperature, max_tokens: 7, skip_special_tokens: false,
    messages: [{role: "user", content: .observations[0]}]
  }' |
  curl -sSf "$OPENAI_BASE_URL/chat/completions" \
    -H "authorization: Bearer $OPENAI_API_KEY" -H 'content-type: application/json' -d @-)
printf '%s' "$reply" | jq '.choices[0].message.content // ""'
