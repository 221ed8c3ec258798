"""Tokens of a reply, whatever its protocol: as workers hand them over, joined with what the client gets."""
