"""Faults on real processes: kills, pauses, cuts, damaged bytes."""
