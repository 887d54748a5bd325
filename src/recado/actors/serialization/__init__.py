"""Serialization of messages, for other nodes and for the disk.

serializers         encode and decode values             class_registry       the known classes, by manifest
tagged_codec        values with their types              exception_registry   the known exceptions
scalars             values without parts                 instances            instances of registered classes
lossless_encoding   values that need no type tags        declared_types       checks of declared types
errors              the exceptions of this package
"""
