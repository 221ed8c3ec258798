"""API keys as a person manages them: made, listed, replaced by new ones, taken back. Each is a record of the
topic `keys`."""
