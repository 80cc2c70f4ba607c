"""The fixtures of the reference server that need something from the client before they can answer.

Up to 2025-11-25 the server sends a request of its own while the call is open. From 2026-07-28 on it
ends the call with a list of questions, and the client calls again with the answers: an input round.
The state that travels with a round is sealed by the SDK, so a client that changes it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import mcp_types as types
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations at run time
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from mcp.server import MCPServer

ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
}


class Person(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def add_to(server: MCPServer) -> None:
    """Give the server everything in this file."""
    for tool in (
        test_sampling,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_missing_capability,
        test_streaming_elicitation,
        test_input_required_result_elicitation,
        test_input_required_result_sampling,
        test_input_required_result_list_roots,
        test_input_required_result_request_state,
        test_input_required_result_multiple_inputs,
        test_input_required_result_multi_round,
        test_input_required_result_tampered_state,
        test_input_required_result_capabilities,
    ):
        server.add_tool(tool)
    server.prompt()(test_input_required_result_prompt)


# Requests while the call is open, up to 2025-11-25.


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    result = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return f"LLM response: {getattr(result.content, 'text', '')}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address."""
    result = await ctx.elicit(message, Person)
    return f"User response: action={result.action}, content={getattr(result, 'data', None)}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default for every kind of field."""
    result = await ctx.elicit("Please check these values.", Defaults)
    return f"Elicitation completed: action={result.action}, content={getattr(result, 'data', None)}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with every kind of choice."""
    # No model gives `enumNames`, so the schema is written out.
    result = await ctx.session.elicit_form("Please choose.", ENUMS, ctx.request_id)
    return f"Elicitation completed: action={result.action}, content={result.content}"


# Input rounds, from 2026-07-28 on.

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
STATE = "as it was"


def test_missing_capability(ctx: Context) -> str:
    """Work only for clients that offer sampling."""
    if not declares(ctx, "sampling"):
        required = types.ClientCapabilities(sampling=types.SamplingCapability())
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=required)
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="this tool needs sampling",
            data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
        )
    return "sampling is there"


async def test_streaming_elicitation(ctx: Context) -> str | types.InputRequiredResult:
    """Report progress, then ask."""
    await ctx.report_progress(1, 2)
    if answer := accepted(ctx, "user_name", "name"):
        return f"Hello, {answer}!"
    return asking(user_name=elicit("What is your name?", NAME))


def test_input_required_result_elicitation(ctx: Context) -> str | types.InputRequiredResult:
    """Ask for a name."""
    if answer := accepted(ctx, "user_name", "name"):
        return f"Hello, {answer}!"
    return asking(user_name=elicit("What is your name?", NAME))


def test_input_required_result_sampling(ctx: Context) -> str | types.InputRequiredResult:
    """Ask the client's model."""
    if (answer := sampled(ctx, "capital_question")) is not None:
        return f"The model says: {answer}"
    return asking(capital_question=sample("What is the capital of France?", 100))


def test_input_required_result_list_roots(ctx: Context) -> str | types.InputRequiredResult:
    """Ask for the client's roots."""
    if (roots := rooted(ctx, "client_roots")) is not None:
        return f"roots: {', '.join(roots)}"
    return asking(client_roots=types.ListRootsRequest())


def test_input_required_result_request_state(ctx: Context) -> str | types.InputRequiredResult:
    """Ask, and get the state back with the answer."""
    if accepted(ctx, "confirm", "ok") and ctx.request_state == STATE:
        return "state-ok"
    return asking(STATE, confirm=elicit("Please confirm", OK))


def test_input_required_result_multiple_inputs(ctx: Context) -> str | types.InputRequiredResult:
    """Ask three things at once."""
    name, greeting, roots = accepted(ctx, "user_name", "name"), sampled(ctx, "greeting"), rooted(ctx, "client_roots")
    if name and greeting is not None and roots is not None and ctx.request_state == STATE:
        return f"{greeting} {name}, from {', '.join(roots)}"
    return asking(
        STATE,
        user_name=elicit("What is your name?", NAME),
        greeting=sample("Generate a greeting", 50),
        client_roots=types.ListRootsRequest(),
    )


def test_input_required_result_multi_round(ctx: Context) -> str | types.InputRequiredResult:
    """Ask, and ask again."""
    if ctx.request_state and ctx.request_state.startswith("name=") and (color := accepted(ctx, "step2", "color")):
        return f"{ctx.request_state.removeprefix('name=')} likes {color}"
    if ctx.request_state == "first" and (name := accepted(ctx, "step1", "name")):
        return asking(f"name={name}", step2=elicit("Step 2: What is your favorite color?", COLOR))
    return asking("first", step1=elicit("Step 1: What is your name?", NAME))


def test_input_required_result_tampered_state(ctx: Context) -> str | types.InputRequiredResult:
    """Ask with a state that must come back as it was."""
    if ctx.request_state == STATE and accepted(ctx, "confirm", "ok"):
        return "the state came back unchanged"
    return asking(STATE, confirm=elicit("Please confirm", OK))


def test_input_required_result_capabilities(ctx: Context) -> str | types.InputRequiredResult:
    """Ask only what the client can answer."""
    questions: dict[str, types.InputRequest] = {}
    if declares(ctx, "elicitation"):
        questions["user_name"] = elicit("What is your name?", NAME)
    if declares(ctx, "sampling"):
        questions["greeting"] = sample("Generate a greeting", 50)
    if questions and not questions.keys() <= (ctx.input_responses or {}).keys():
        return asking(**questions)
    return "asked what could be asked"


def test_input_required_result_prompt(ctx: Context) -> str | types.InputRequiredResult:
    """Ask before the prompt can be made."""
    if answer := accepted(ctx, "user_context", "context"):
        return f"Use this context: {answer}"
    return asking(user_context=elicit("What context should the prompt use?", CONTEXT))


def asking(state: str | None = None, /, **questions: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=questions, request_state=state)


def elicit(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(text: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def accepted(ctx: Context, question: str, field: str) -> Any:
    """What the user filled in, or None if this was not answered, or not with yes."""
    answer = (ctx.input_responses or {}).get(question)
    if isinstance(answer, types.ElicitResult) and answer.action == "accept":
        return (answer.content or {}).get(field)
    return None


def sampled(ctx: Context, question: str) -> str | None:
    answer = (ctx.input_responses or {}).get(question)
    if isinstance(answer, types.CreateMessageResult | types.CreateMessageResultWithTools):
        return getattr(answer.content, "text", "")
    return None


def rooted(ctx: Context, question: str) -> list[str] | None:
    answer = (ctx.input_responses or {}).get(question)
    return [str(root.uri) for root in answer.roots] if isinstance(answer, types.ListRootsResult) else None


def declares(ctx: Context, capability: Literal["sampling", "elicitation"]) -> bool:
    return ctx.client_capabilities is not None and getattr(ctx.client_capabilities, capability) is not None
