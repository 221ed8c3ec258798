#!/usr/bin/env bash
# Game day "the trainer's disk is full": a run writes its checkpoints to a disk of a few megabytes, which somebody else fills while it trains.
# The disk is a tmpfs in a mount namespace of this script's own (no root): what stands on it is seen from inside alone.
if [ -z "${INSIDE:-}" ]; then
  exec env INSIDE=1 unshare --map-root-user --mount "$0" "$@"
fi
. "$(dirname "$0")/common.sh"
disk=$CLAW_HOME/disk
mkdir -p "$disk"
mount -t tmpfs -o size=64m tmpfs "$disk"
aside broker claw broker
await "the broker" claw topics describe
model=$(python -m claw_r1.claw.demo.verbs.tiny_model --out "$CLAW_HOME/models" --seed 0 | tail -n 1)
cat > "$CLAW_HOME/trainer.yaml" <<END
{model_dir: $model, model_id: tiny, run_id: gameday, out_dir: $disk/run, learning_rate: 1.0e-3, batches_max: 100000,
 spec: {groups_per_batch: 4, group_size: 4, staleness_max: 4}}
END
claw up --port "$port" --model "$model" --config "$CLAW_HOME/trainer.yaml"
aside agents claw agents run --flow claw_r1.claw.demo.verbs.flow:VerbsFlow --gateway "http://127.0.0.1:$port" \
  --run-id gameday --model tiny --group-size 4 --concurrency 16 --channel train
await "a trained batch" sh -c 'claw runs list | grep -q gameday'
dd if=/dev/zero of="$disk/somebodys.bin" bs=1M 2> /dev/null || true  # until nothing fits any more
echo "  What is on that disk is seen with: nsenter -t $$ -U -m --preserve-credentials ls -l $disk"
rings ClawDiskFull
