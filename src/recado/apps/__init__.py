"""Programs that a user could have written: they use the public API of recado and nothing else."""
