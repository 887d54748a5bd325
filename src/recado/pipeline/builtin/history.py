"""A searchable table of messages: chats, the copies of a wire tap, any feed or queue of texts.

A row has the text of the body, if it is text, and its distinct words in lower case, without accents, sorted.
The words are a column of their own, so that a search reads only this column of rows that do not match. Other
bodies are included without text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ACCENTS: Final = ("áàâãäåçéèêëíìîïñóòôõöúùûüýÿ", "aaaaaaceeeeiiiinooooouuuuyy")
_NON_WORD_PATTERN: Final = r"[^\p{L}\p{N}]+"
_WORD_CHARACTER_COUNT_MIN: Final = 2  # shorter words are not indexed
_COORDINATES: Final = (
    "feed",
    "queue",
    "offset",
    "exchange",
    "routing_key",
    "message_id",
    "headers",
)


def build_history(rows: DataFrame) -> DataFrame:
    """Convert rows of a feed or a queue: where and when a message was published, its text, and its words."""
    text = _decode_text("body")
    present = [name for name in _COORDINATES if name in rows.columns]
    arrived = "received" if "received" in rows.columns else "timestamp"
    return (
        rows.withColumn("time", f.coalesce("timestamp", arrived))
        .withColumn("date", f.to_date("time"))
        .withColumn("text", text)
        .withColumn("words", _extract_words("text"))
        .select("date", "time", *present, "text", "words", f.length("body").alias("bytes"))
    )


def search(
    table: DataFrame, words: str, *, since: str | None = None, until: str | None = None
) -> DataFrame:
    """Return the rows that contain all of these words, newest first, optionally between two times.

    Words that are too short are ignored; if no word is left, no row matches.
    """
    wanted = _extract_words(f.lit(words))
    found = table.where((f.size(wanted) > 0) & (f.size(f.array_except(wanted, "words")) == 0))
    if since is not None:
        found = found.where((f.col("time") >= since) & (f.col("date") >= f.to_date(f.lit(since))))
    if until is not None:
        found = found.where((f.col("time") < until) & (f.col("date") <= f.to_date(f.lit(until))))
    return found.orderBy(f.desc("time"), f.desc("offset"))


def _decode_text(name: str) -> Column:
    """Decode bytes to text; NULL if they are not UTF-8 or contain NUL characters."""
    text = f.try_validate_utf8(f.col(name).cast("string"))
    return f.when(~text.contains("\0"), text)


def _extract_words(text: str | Column) -> Column:
    folded = f.translate(f.lower(text), *_ACCENTS)
    words = f.filter(
        f.split(folded, _NON_WORD_PATTERN), lambda word: f.length(word) >= _WORD_CHARACTER_COUNT_MIN
    )
    return f.array_sort(f.array_distinct(words))
