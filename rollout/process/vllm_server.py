"""`python -m` of vLLM's API server, whose imports are not interrupted by garbage collection.

They take five to eight CPU seconds in each process of an engine, a quarter of which went to looking through modules that last.
The engine's own process imports this module as well: vLLM spawns it, and spawning begins with the parent's main module.
"""

import gc

gc.disable()
try:
    from vllm.entrypoints.launchers.api_server.entry import main
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    main()
