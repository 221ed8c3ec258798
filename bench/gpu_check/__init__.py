"""A check of what only a GPU can show: `make gpu-check`, or `python -m bench.gpu_check [--part P]… [--json]`.

Needs Python >= 3.11, torch with CUDA, transformers, safetensors, pydantic, PyYAML and DeepSpeed; no Kafka, no network, no vLLM but in part `worker`
(an import contract keeps the trainer's engine and `weights` that light). FlexAttention alone wants triton and a C
compiler besides. Each part that cannot run says why, and the others run.
"""
