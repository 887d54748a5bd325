"""The workshop: tools for the people who build recado. Never installed with the package."""
