"""Translators: objects become bodies and bodies become objects, by content type.

translators          the registry that programs use
translator           the port of one format; own formats implement it
json_translator, text_translator, message_pack_translator, raw_translator
content_type         content types and charsets
object_model         classes that msgspec does not know
"""

from .translator import Decode, Encode, Translator
from .translators import Translators

__all__ = ["Decode", "Encode", "Translator", "Translators"]
