"""The built-in layers; `stack` lists them."""
