"""Records a vector anew: makes its requests and writes down the answers.

A step whose answer is still what it compares keeps its recording as it is: texts that are not compared, and an order
that is chance, make no difference in the file. ``fresh`` takes the whole answer all the same. Of a step that compares
with ``contains`` the new recording has what the earlier one had, as far as the answer has it.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from tests.tools.recorder.compare import blank, comparable, differences
from tests.tools.recorder.files import Entry
from tests.tools.recorder.replay import Answer, Step, Vector, by_number, run
from tests.tools.recorder.wire import Server

IDENTITY = ("name", "kind", "type", "manager", "key", "field")  # what tells the elements of lists apart


@dataclass(frozen=True)
class Recorded:
    """A vector, or a group of refusals, recorded anew; if that failed it is as it was before."""

    entry: Entry
    notes: list[str] = field(default_factory=list)  # what its author should look at
    failed: bool = False


def record(vector: Vector, server: Server, ident: str, fresh: bool = False) -> Recorded:
    """Make a vector's requests, with an id of its own, and fill in the answers. Blocks until all are there."""
    new, notes = copy.deepcopy(vector), list[str]()

    def observe(step: Step, _: Answer, answer: Answer) -> None:
        if "until" in step and differences(step["until"], answer, "contains"):
            notes.append(f"{step['id']}: never became as it should: {json.dumps(step['until'])}")
        earlier, contains = step.get("expect"), step.get("compare") == "contains"
        if earlier is not None and (contains or not fresh):
            mode = step.get("compare", "full")
            if not differences(comparable(earlier, step), comparable(answer, step), mode):
                return
        if contains and earlier is not None:
            notes.append(f"{step['id']}: only what was recorded before was looked for; see whether it shows enough")
            answer = narrowed(answer, earlier)
        for pointer in step.get("ignore", []):
            blank(answer, pointer)
        step["expect"] = answer

    try:
        order = run(new, server, ident, observe)
    except Exception as error:  # told, so that one bad vector does not lose the others
        return Recorded(vector, [*notes, f"FAILED {type(error).__name__}: {error}"], failed=True)
    if order == by_number(order):
        new.pop("rvOrder", None)
    else:
        new["rvOrder"] = order
    return Recorded(new, notes)


def narrowed(answer: Any, earlier: Any) -> Any:
    """What an answer has of the fields and elements that an earlier recording had."""
    if isinstance(answer, dict) and isinstance(earlier, dict):
        return {key: narrowed(answer[key], value) for key, value in earlier.items() if key in answer}
    if isinstance(answer, list) and isinstance(earlier, list):
        found = ((item, _counterpart(answer, item)) for item in earlier)
        return [narrowed(other, item) for item, other in found if other is not None]
    return answer


def _counterpart(elements: list[Any], earlier: Any) -> Any:
    """The element that contains an earlier one, or else has the same identity; None if there is none."""
    for element in elements:
        if not differences(earlier, element, "contains"):
            return element
    if not isinstance(earlier, dict):
        return None
    identity = [(key, earlier[key]) for key in IDENTITY if key in earlier][:1]
    return next((element for element in elements if isinstance(element, dict) and identity
                 and all(element.get(key) == value for key, value in identity)), None)
