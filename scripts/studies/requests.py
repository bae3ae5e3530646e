"""Requests of studies: what they ask, read from files, and known again in another spelling."""

import json
import re
from pathlib import Path

from .cells import Failed

SOURCES = ("prompt", "messages", "turns")
ASKED_WITH = ("system", "tools", "functions", "documents", "chat_template_kwargs")


def read_lines(file: Path) -> list[dict]:
    try:
        # Not splitlines, which also cuts at characters that stand within JSON texts.
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise Failed(f"{file}: expected JSON lines: {error}") from None
    for record in records:
        if not isinstance(record, dict):
            raise Failed(f"{file}: expected an object on each line, found {record!r}")
    return records


def read_requests(file: Path) -> list[dict]:
    """A user's requests, for clover-infer batch or of OpenAI's form: what they ask and their category.

    Settings of sampling that they carry are left out, since studies compare settings of their own; a list of prompts becomes a
    request for each."""
    return [request for number, record in enumerate(read_lines(file), start=1) for request in _requests_of(record, f"{file}, request {number}")]


def _requests_of(record: dict, place: str) -> list[dict]:
    body = record.get("body") or record
    asked = {name: body[name] for name in (*SOURCES, *ASKED_WITH) if isinstance(body, dict) and body.get(name)}
    sources = [name for name in SOURCES if name in asked]
    if len(sources) != 1:
        raise Failed(f"{place}: expected one of prompt, messages and turns, found {' and '.join(sources) or 'none'}")
    asks = asked[sources[0]]
    if sources[0] == "messages" and not (isinstance(asks, list) and all(isinstance(message, dict) for message in asks)):
        raise Failed(f"{place}: messages: expected a list of objects")
    if sources[0] == "turns" and not (isinstance(asks, list) and all(isinstance(turn, str) for turn in asks)):
        raise Failed(f"{place}: turns: expected a list of texts")
    if record.get("category"):
        asked["category"] = record["category"] if isinstance(record["category"], str) else json.dumps(record["category"])
    if sources[0] == "prompt" and isinstance(asks, list) and not isinstance(asks[0], int):
        return [{**asked, "prompt": prompt} for prompt in asks]
    return [asked]


def user_texts(record: dict) -> list[str]:
    """What the user says, a text for each turn."""
    if "messages" in record:
        said = [message.get("content") for message in record["messages"] if message.get("role") not in ("assistant", "system")]
    elif "turns" in record:
        said = record["turns"]
    else:
        said = [record.get("prompt")]
    return [_joined(part) for part in said]


def _joined(content) -> str:
    """The text of a message, whose content may be parts."""
    if isinstance(content, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        return " ".join(part["text"] for part in content)
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True)


def text_of(record: dict) -> str:
    """What is asked, in one spelling, so that the same question is known again whatever its record looks like."""
    return beginnings_of(record)[-1]


def beginnings_of(record: dict) -> list[str]:
    """text_of the conversation up to each turn of the user."""
    beside = [json.dumps(record[name], sort_keys=True) for name in ("documents", "tools", "functions") if record.get(name)]
    said = user_texts(record) or [""]
    return [re.sub(r"[\s.,;:!?\"'`]+", " ", " ".join(beside + said[:count])).strip().lower() for count in range(1, len(said) + 1)]


def not_among(records: list[dict], others: list[dict]) -> list[dict]:
    """Those that ask nothing that the others ask: neither begins as the other one goes."""
    wholes = {text_of(other) for other in others}
    beginnings = {text for other in others for text in beginnings_of(other)}
    return [record for record in records if text_of(record) not in beginnings and wholes.isdisjoint(beginnings_of(record))]
