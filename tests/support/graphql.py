"""A server of people that speaks GraphQL, by the reference implementation in Python: one document,
or server-sent events as graphql-sse has them ("distinct connections").
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from graphql import ExecutionResult, build_schema, graphql_sync, parse, subscribe, validate

SCHEMA = """
type Query { person(id: ID!): Person, people(email: String, emails: [String!]): [Person!]!, page: Page!, version: String }
type Page { edges: [Edge!]! }
type Edge { node: Person! }
type Mutation {
  createPerson(input: PersonInput!): Person
  updatePerson(id: ID!, input: PersonInput!): Person
  deletePerson(id: ID!): Boolean
  note(text: String!): String
}
type Subscription { changed(email: String): Person }
type Person { id: ID! name: String email: String born: String address: Address tags: [String!] vip: Boolean }
type Address { street: String city: String }
input PersonInput { name: String email: String born: String address: AddressInput tags: [String!] vip: Boolean }
input AddressInput { street: String city: String }
"""


@dataclass
class People:
    """People in memory, and all that the server was sent."""

    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    received: list[str] = field(default_factory=list)
    fails: bool = False  #: after it has stored
    changes: asyncio.Queue[str] = field(default_factory=asyncio.Queue)  #: ids; empty: no more come

    def __post_init__(self) -> None:
        self._schema = build_schema(SCHEMA)
        self._root = {
            "person": lambda _info, id: self.people.get(id),  # noqa: A006  # the name of the schema
            "people": self.search,
            "page": lambda _info: {"edges": [{"node": one} for one in self.people.values()]},
            "version": lambda _info: "1",
            "createPerson": self.create,
            "updatePerson": lambda _info, id, input: self.stored(id, input),  # noqa: A006  # the name of the schema
            "deletePerson": lambda _info, id: self.people.pop(id, None) is not None,  # noqa: A006  # the name of the schema
            "note": lambda _info, text: text,
            "changed": self.changed,
        }

    def search(self, _info: Any, email: str = "", emails: Any = ()) -> list[Any]:
        wanted = {email, *emails}
        return [one for one in self.people.values() if wanted == {""} or one["email"] in wanted]

    def create(self, _info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002  # the name of the schema
        one = self.stored(str(len(self.people) + 1), input)
        if self.fails:
            raise ValueError(f"no room for {one['name']}")
        return one

    def stored(self, key: str, values: dict[str, Any]) -> dict[str, Any]:
        one = self.people[key] = {"email": None, **self.people.get(key, {}), **values, "id": key}
        return one

    async def changed(self, _info: Any, email: str = "") -> AsyncIterator[dict[str, Any]]:
        while key := await self.changes.get():
            if email in ("", self.people[key]["email"]):
                yield {"changed": self.people[key]}

    async def events(self, body: Any) -> AsyncIterator[Any]:
        """What it answers to a request, one document after the other."""
        document = parse(body["query"])
        if document.definitions[0].operation.value != "subscription":  # type: ignore[attr-defined]  # no fragment stands first
            yield self.answer(body)
        elif errors := validate(self._schema, document):
            yield {"errors": [one.formatted for one in errors]}
        else:
            started = subscribe(
                self._schema, document, self._root, variable_values=body.get("variables")
            )
            results = await started if inspect.isawaitable(started) else started
            if isinstance(results, ExecutionResult):
                yield results.formatted
                return
            async for result in results:
                yield result.formatted

    def answer(self, body: Any) -> Any:
        """What it answers to one request, or to a list of them."""
        if isinstance(body, list):
            return [self.answer(one) for one in body]
        result = graphql_sync(
            self._schema,
            body["query"],
            self._root,
            variable_values=body.get("variables"),
            operation_name=body.get("operationName"),
        )
        return result.formatted

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The handler of its address."""
        self.received.append(f"{await request.text()}{request.query_string}")
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._streamed(request)
        return web.json_response(self.answer(json.loads(self.received[-1])))

    async def _streamed(self, request: web.Request) -> web.StreamResponse:
        body: Any = dict(request.query)
        if request.method == "POST":
            body = await request.json()
        elif "variables" in body:
            body["variables"] = json.loads(body["variables"])
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        await answer.write(b":\n\n")
        async for document in self.events(body):
            await answer.write(b"event: next\ndata: %b\n\n" % json.dumps(document).encode())
        await answer.write(b"event: complete\ndata: \n\n")
        return answer
