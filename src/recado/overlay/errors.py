"""The exceptions of the overlay."""


class OverlayError(Exception):
    """Base class of all exceptions of the overlay."""


class InvalidAddressError(OverlayError, ValueError):
    """An address of a node that is not in canonical form, so that its id would not be unique."""
