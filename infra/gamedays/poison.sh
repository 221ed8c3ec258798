#!/usr/bin/env bash
# Game day "a poisoned topic": somebody's producer writes what is no event of ours where facts belong.
. "$(dirname "$0")/common.sh"
stack
aside agents agents
await "captured calls" claw pool steps --limit 1
printf 'not avro %s\n' 1 2 3 | claw broker tool console-producer --topic claw.calls
rings ClawDeadLetters
