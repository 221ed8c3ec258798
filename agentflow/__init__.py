"""White-box agents: write a flow, run it in groups through the gateway. Imports no torch and no Kafka, only HTTP."""
