"""Translators: objects become bodies and bodies become objects, by content type.

translators          the registry that programs use
translator           the port of one format; own formats implement it
json_translator, text_translator, xml_translator, yaml_translator, message_pack_translator, protobuf_translator,
raw_translator       the formats
content_type         content types and charsets
object_model         types that msgspec does not know
"""

from .translator import Decode, Encode, Translator
from .translators import Translators
from .xml_translator import XmlTranslator
from .yaml_translator import YamlTranslator

__all__ = ["Decode", "Encode", "Translator", "Translators", "XmlTranslator", "YamlTranslator"]
