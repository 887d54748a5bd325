"""Tools for developers of recado. Not installed with the package."""
