"""The layers that come with recado; `stack` has the table of them."""
