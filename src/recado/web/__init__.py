"""Web pages without a build step or another host: the files of an application, and how they are answered.

assets      the files of an application in memory, at addresses that contain their digest
answers     a file as an HTTP answer, with a strict content security policy
vendor/     the JavaScript of other projects, shared by the web console and the chat
"""

from .answers import SAFE_METHODS, render_asset, security_headers
from .assets import VENDOR_FOLDER, Asset, WebAssets, load_assets

__all__ = [
    "SAFE_METHODS",
    "VENDOR_FOLDER",
    "Asset",
    "WebAssets",
    "load_assets",
    "render_asset",
    "security_headers",
]
