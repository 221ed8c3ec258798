"""Programs that know no gateway and no trainer: each finds its model in OPENAI_BASE_URL, as in production."""
