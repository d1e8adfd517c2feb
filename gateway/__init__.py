"""Agents' REST for effects."""
