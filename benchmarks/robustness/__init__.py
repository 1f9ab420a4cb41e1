"""Attacks: kills, flipped bits, damaged files."""
