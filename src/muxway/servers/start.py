"""One start of a connection: a place for its process, the first words in the right era, and its lists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway import __version__
from muxway.errors import METHOD_NOT_FOUND, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange.only_client import OnlyClient
from muxway.log import EventLog
from muxway.servers.connection import Connection
from muxway.servers.negotiation import DiedOfProbe, TakesNoHandshake, greet
from muxway.wire import asking

if TYPE_CHECKING:
    from muxway.calls.call import Caller
    from muxway.servers.negotiation import Era
    from muxway.servers.slot import Slot

_CLIENT_INFO: Final = {"name": "muxway", "version": __version__}
_PROBATION: Final = 30.0
"""Seconds within which a server that answered a probe and then ended may have waited for a handshake."""
_FIRST_WORD: Final = 0.5
"""Seconds for which a server is kept waiting for the first word of the only client."""
_FIRST_QUESTIONS: Final = 2.0
"""Seconds that a server's client gets to answer what the server asks at its start."""

log = EventLog("upstream")


class EraMemory:
    """Which era a server speaks, as far as its starts have shown: it does not change between two of them."""

    __slots__ = ("_died_of_probe", "_next", "_on_probation", "doubted", "era", "refused_handshake")

    def __init__(self, era: Era) -> None:
        self.era: Era = era
        self.refused_handshake = False
        """Whether it has been offered a handshake and did not take it."""
        self.doubted = False
        """Whether it is thought to expect a handshake, though it has answered a probe."""
        self._on_probation = False
        """Whether it has answered a probe, and may have expected a handshake all the same."""
        self._died_of_probe = False
        self._next: Era | None = None
        """The era of the next start alone, if it is not that of every start."""

    def next(self) -> Era:
        """The era to begin a start in."""
        once, self._next = self._next, None
        return once or self.era

    def died_of_probe(self) -> bool:
        """It ended when it was probed. Returns whether it did so before, and also when it was started unprobed.

        One like that may speak either era once it can be started: from then on, each start tries one of them.
        """
        again, self._died_of_probe = self._died_of_probe, True
        self._next = "legacy" if again else None
        return again

    def took_no_handshake(self) -> None:
        """It has refused one, and is started again without. If that fails, too, the next start is without at once:
        two processes at each start would be twice as many as a server may be started that always fails."""
        self.refused_handshake = True
        self._next = "modern"

    def greeted(self, *, stateless: bool, handshake_first: bool, probed_child: bool) -> None:
        """It has introduced itself, in this era."""
        self.refused_handshake |= handshake_first and stateless
        self._on_probation = probed_child and stateless
        self.era = "modern" if stateless else "legacy"
        self._died_of_probe = False

    def ended(self, name: str, ran: float | None) -> None:
        """It has ended, after so many seconds; None if it was never ready.

        Some answer a probe, and end a little later because nobody shook hands.
        """
        if self.doubted and self.era == "auto":
            # It did not take a handshake, either.
            self.doubted, self.era = False, "modern"
        elif self._on_probation and (ran is None or ran < _PROBATION):
            log.info("ended soon after a probe; starting it again with a handshake", upstream=name)
            self.doubted, self.era = True, "auto"
        self._on_probation = False


class Start:
    """The start of one connection."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.connection: Connection | None = None
        """What has come of it so far."""

    async def run(self) -> Connection:
        """Start, greet and list. Whatever it raises, the connection, if there is one, is the caller's to close.

        Raises:
            NoRoomToStart: there are as many processes as there may be.
            MuxwayError, TimeoutError, OSError: it could not be started.
        """
        slot = self._slot
        room = slot.instance.room
        if room is not None:
            await room()
        async with asyncio.timeout(slot.instance.terms.start_timeout):
            connection = await self._meet()
            await slot.lists.read_all(connection)
            tenant = slot.tenant
            if tenant.client is not None and "roots" in tenant.capabilities and not connection.revision.stateless:
                await connection.questions.answered(_FIRST_QUESTIONS)
            connection.check()
        return connection

    async def _meet(self) -> Connection:
        """Connect and greet; again, where a server shows only in this way which era it speaks."""
        eras, name = self._slot.eras, self._slot.name
        connection = self._connect()
        try:
            await self._greet(connection, eras.next())
        except TakesNoHandshake:
            eras.took_no_handshake()
            log.info("takes no handshake; starting it again without", upstream=name)
            await connection.close()
            connection = self._connect()
            await self._greet(connection, "modern")
        except DiedOfProbe as died:
            if eras.died_of_probe():
                raise died.lost from died
            log.info("ended when probed; starting it again with a handshake", upstream=name)
            await connection.close()
            connection = self._connect()
            try:
                await self._greet(connection, "legacy")
            except UpstreamSaid as error:
                # One that knows no handshake did not die of the probe.
                raise (died.lost if error.code == METHOD_NOT_FOUND else error) from died
        return connection

    def _connect(self) -> Connection:
        slot = self._slot
        slot.transport = slot.instance.dial(slot.key.sent)
        server = slot.instance.server
        connection = self.connection = Connection(
            slot.name, slot.transport, slot.instance.terms.limits, server.counters, slot.instance.mask, server.is_bare
        )
        connection.notices.on_notice = slot.hear_notice
        slot.lists.forget_changes()
        connection.questions.client = slot.tenant.client
        return connection

    async def _greet(self, connection: Connection, era: Era) -> None:
        await connection.open()
        slot, tenant = self._slot, self._slot.tenant
        caller = await _met(tenant.client) if isinstance(tenant.client, OnlyClient) else None
        if caller is not None:
            tenant.capabilities = asking.declared(caller.capabilities, caller.revision, own=True)
        child = slot.transport is not None and not slot.transport.remote
        # By URL one connection for each era costs nothing; a child speaks the era of its client, as it is one process.
        handshake_first = child and era == "auto" and (slot.eras.doubted or caller is not None)
        slot.greeting = await greet(
            connection,
            era,
            _CLIENT_INFO,
            tenant.capabilities,
            slot.instance.terms.start_timeout,
            handshake_first=handshake_first,
        )
        slot.eras.greeted(
            stateless=connection.revision.stateless,
            handshake_first=handshake_first,
            probed_child=child and era == "auto" and not handshake_first,
        )

    def why(self, error: Exception) -> str:
        """Why it has failed, as people are told."""
        slot, connection = self._slot, self.connection
        name, timeout = slot.name, slot.instance.terms.start_timeout
        why = slot.instance.mask(str(error) or repr(error))
        if isinstance(error, TimeoutError):
            why = f'server "{name}" was not ready after {timeout:g} s (startTimeout)'
            why += "" if connection is None else _said_instead(connection, why)
        elif not isinstance(error, RpcError) or not why.startswith("server "):
            why = f'server "{name}" could not be started: {why}'
        elif connection is not None and isinstance(error, UpstreamError) and error.reason == "lost":
            why += _said_instead(connection, why)
        words = None if slot.transport is None else slot.transport.last_words()
        if words is not None and words not in why:
            why = f"{why}; its last stderr line: {words}"
        return why


async def _met(only: OnlyClient) -> Caller | None:
    """Who the only client is, if it has a session; None also if it says nothing for a while."""
    caller: asyncio.Future[Caller | None] = asyncio.get_running_loop().create_future()

    def hear(found: Caller | None) -> None:
        if not caller.done():
            caller.set_result(found)

    only.when_met(hear)
    try:
        async with asyncio.timeout(_FIRST_WORD):
            return await caller
    except TimeoutError:
        return None


def _said_instead(connection: Connection, why: str) -> str:
    """What to add to how a program ended, or was silent, that has answered nothing: it may be no MCP server."""
    if connection.answers or not ("exited with status" in why or why.endswith("(startTimeout)")):
        return ""
    hint = " before it answered, as a program does that is no MCP server" if why.endswith("status 0") else ""
    line = connection.junk.first
    return hint if line is None else f"{hint}; its first line on stdout: {line}"
