"""What the peers of test_data_killed and their judge agree on."""

FORM = {"size": 211, "seed": 9, "block": 16, "peers": 8, "ranges": 64}
