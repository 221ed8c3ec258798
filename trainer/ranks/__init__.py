"""Several processes that train one model: rank 0 leads, the others do as it does."""
