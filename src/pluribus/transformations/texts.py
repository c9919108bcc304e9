"""Text in one encoding or another. No character is replaced: if the encoding lacks one, the body is not transformed."""

from __future__ import annotations

from typing import Any

from ..core.errors import NotTransformed
from .steps import Format, Plain, checked_encoding, encoded_text, text_of


class EncodedText(Format, frozen=True, kw_only=True):
    """Reads bytes in ``encoding``, and writes bytes in it."""

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        checked_encoding(self.encoding)

    def read(self, body: Any) -> Plain:
        return text_of(body, self.encoding, "text")

    def write(self, value: Plain) -> Any:
        if not isinstance(value, str):
            raise NotTransformed(f"a {type(value).__name__} is no text: write it as json, xml or csv")
        return encoded_text(value, self.encoding)
