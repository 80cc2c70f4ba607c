"""What is tried between each client and each server: one function a subject, in the order of the page.

A function gets a `Pair`, does something real with it, and returns what came of it: `SAME`, or `converted("how")`, or
`impossible("why", …)`. Anything else is an AssertionError, and a failure. Its docstring is the sentence on the page.
The tool it calls, if it calls one, is defined beside it and runs in the server; so are prompts and resources.
"""

from tests.compatibility.subjects import definitions, results, under_way, questions, tasks, prompts, resources, lists  # noqa: F401, I001
from tests.compatibility.subjects.base import ABSENT, NEWEST, SUBJECTS, Outcome, Subject, converted, impossible

__all__ = ["ABSENT", "NEWEST", "SUBJECTS", "Outcome", "Subject", "converted", "impossible"]
