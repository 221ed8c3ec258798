"""Everything that is no model call: lifecycle, rewards, admission, health and the list of models."""
