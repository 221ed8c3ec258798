"""One step of TRL's DPOTrainer on exported pairs, in an environment that has trl: `python dpo_step.py PAIRS MODEL OUT`.

Prints JSON: rows as `datasets` loads them, the columns, the loss, and whether a weight changed.
"""

import json
import sys

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer


def main(pairs: str, folder: str, out: str) -> None:
    """Trains one step on the CPU."""
    rows = load_dataset("parquet", data_files=pairs, split="train", cache_dir=f"{out}/cache")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    settings = DPOConfig(
        output_dir=out, max_steps=1, per_device_train_batch_size=2, learning_rate=1e-3, report_to=[], use_cpu=True,
        bf16=False, gradient_checkpointing=False, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    trainer = DPOTrainer(
        model=model, args=settings, train_dataset=rows, processing_class=AutoTokenizer.from_pretrained(folder)
    )
    result = trainer.train()
    changed = any(not torch.equal(old, new.cpu()) for old, new in zip(before, trainer.model.parameters(), strict=True))
    print(
        json.dumps({"rows": len(rows), "columns": rows.column_names, "loss": result.training_loss, "changed": changed})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
