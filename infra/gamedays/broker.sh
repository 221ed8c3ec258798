#!/usr/bin/env bash
# Game day "a broker is lost": Kafka is killed under load, and nobody starts it again.
. "$(dirname "$0")/common.sh"
stack
aside agents agents
await "captured calls" claw pool steps --limit 1
kill -KILL "${own[0]}"  # `claw broker`, with which its Kafka ends
rings ClawSpoolAges
