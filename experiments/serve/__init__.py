"""A server of a character model: many sessions, one batched step."""
