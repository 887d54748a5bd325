"""The WebSocket of a browser.

Frames for the browser are collected for the rest of the turn of the event loop and written at once, as bytes that all
sockets share. They bypass aiohttp, which would encode and mask each again: its transport takes complete frames.

SO1  A browser that does not read is disconnected when `OUTBOX_MAX_BYTES` wait for it. It resumes by its positions.
SO2  A browser that sends too much, or a malformed WebSocket frame, is disconnected; a malformed JSON object is
     answered with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, assert_never

from aiohttp import WSCloseCode, WSMsgType, web

from . import frames
from .chat import Chat
from .device import Device, OnlineUser, TokenBucket
from .frames import ClientFrame, decode_client_frame, encode_frame
from .messages import ChatUser
from .names import RefusedError

OUTBOX_MAX_BYTES: Final = 2 << 20
DRAIN_BYTES: Final = 256 << 10
DRAIN_INTERVAL_S: Final = 0.02
FRAME_MAX_BYTES: Final = 64 << 10  # 8,000 characters of 6 bytes each as JSON, and ids
HEARTBEAT_S: Final = 30.0
FIRST_FRAME_TIMEOUT_S: Final = 30.0
FRAMES_PER_SECOND: Final = 50.0
FRAMES_BURST_COUNT: Final = 300
REQUESTS_MAX_COUNT: Final = 32
"""Sends, joins and the like of one browser that wait for the broker."""

SIGNED_OUT_CODE: Final = 4401
PONG: Final = encode_frame({"type": "pong"})

log = logging.getLogger("recado.chat")


class SocketDevice(Device):
    """A browser that is connected."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        super().__init__()
        self._socket = socket
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._close_task: asyncio.Task[bool] | None = None

    def push(self, frame: bytes) -> None:
        if self._close_task is not None:
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)

    def _flush(self) -> None:
        outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
        if self._socket.closed or self._transport.is_closing() or self._close_task is not None:
            return
        self._transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))
        waiting_bytes = self._transport.get_write_buffer_size()
        if waiting_bytes > OUTBOX_MAX_BYTES:
            log.info(
                "closing a WebSocket: the browser does not read (waiting_bytes=%d limit=%d)",
                waiting_bytes,
                OUTBOX_MAX_BYTES,
            )
            self._transport.abort()

    async def drain(self) -> None:
        while (  # noqa: ASYNC110 - a transport tells only its own protocol when it has written
            self._outbox_bytes + self._transport.get_write_buffer_size() > DRAIN_BYTES
            and not self._transport.is_closing()
        ):
            await asyncio.sleep(DRAIN_INTERVAL_S)

    def close(self, reason: str) -> None:
        if self._close_task is None:
            self._flush_before_close()
            closing = self._socket.close(
                code=WSCloseCode.POLICY_VIOLATION, message=reason.encode()[:100]
            )
            self._close_task = self._loop.create_task(closing)

    def _flush_before_close(self) -> None:
        if self._outbox:
            self._flush()
            self._outbox = []


class Conversationalist:
    """Reads the frames of one browser, and does what they ask for."""

    def __init__(self, chat: Chat, online: OnlineUser, device: SocketDevice) -> None:
        self._chat = chat
        self._online = online
        self._device = device
        self._requests: set[asyncio.Task[None]] = set()
        self._bucket = TokenBucket(FRAMES_PER_SECOND, FRAMES_BURST_COUNT)
        self._has_resumed = False

    async def run(self, socket: web.WebSocketResponse) -> None:
        """Handle frames until the browser disconnects."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                timeout_s = None if self._has_resumed else FIRST_FRAME_TIMEOUT_S
                received = await socket.receive(timeout=timeout_s)
                if received.type is not WSMsgType.TEXT:
                    return
                if not self._bucket.take(loop.time()):
                    self._device.close("too many frames")
                    return
                try:
                    self._handle(decode_client_frame(received.data))
                except RefusedError as error:
                    self._push_error(error)
        except TimeoutError:
            self._device.close("no first frame")
        finally:
            for request in self._requests:
                request.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)

    def _handle(self, frame: ClientFrame) -> None:
        chat, online, device = self._chat, self._online, self._device
        if not self._has_resumed:
            if not isinstance(frame, frames.ResumeFrame):
                raise RefusedError("frame", "the first frame must be resume")
            self._has_resumed = True
            self._start(chat.resume(online, device, frame.positions))
            return
        match frame:
            case frames.ResumeFrame():
                raise RefusedError("frame", "only the first frame may be resume")
            case frames.SendFrame(client_id, conversation, text, reply_to):
                sending = chat.send(online, client_id, conversation, text, reply_to)
                self._start(self._answer(client_id, sending), client_id)
            case frames.EditFrame(client_id, message_id, text):
                changing = chat.change(online, client_id, message_id, text)
                self._start(self._answer(client_id, changing), client_id)
            case frames.DeleteFrame(client_id, message_id):
                changing = chat.change(online, client_id, message_id, None)
                self._start(self._answer(client_id, changing), client_id)
            case frames.JoinFrame(room):
                self._start(chat.join(online, device, room))
            case frames.LeaveFrame(room):
                self._start(chat.leave(online, room))
            case frames.OpenFrame(user_id):
                self._start(chat.open_private(online, device, user_id))
            case frames.ReadFrame(conversation, position):
                self._start(chat.mark_read(online, conversation, position))
            case frames.TypingFrame(conversation):
                chat.announce_typing(online, conversation)
            case frames.PingFrame():
                device.push(PONG)
            case frames.DrawerFrame(is_open):
                chat.drawer.watch(online, device, is_open=is_open)
            case _:
                assert_never(frame)

    def _start(self, work: Coroutine[Any, Any, None], client_id: str = "") -> None:
        """Do what may have to wait for the broker, while further frames are handled."""
        if len(self._requests) >= REQUESTS_MAX_COUNT:
            work.close()
            reason = f"{REQUESTS_MAX_COUNT} requests are waiting already"
            if client_id:
                self._push_failed(client_id, RefusedError("frame", reason, retry=True))
            else:
                self._push_error(RefusedError("frame", reason, retry=True))
            return
        task = asyncio.create_task(self._run_request(work))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before it began

    async def _run_request(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except RefusedError as error:
            self._push_error(error)
        except Exception:
            log.exception("error while handling a request (user=%s)", self._online.user.id)
            self._device.close("internal error")

    async def _answer(self, client_id: str, work: Coroutine[Any, Any, tuple[str, int]]) -> None:
        try:
            message_id, position = await work
        except RefusedError as error:
            self._push_failed(client_id, error)
        else:
            self._device.push(
                encode_frame(
                    {
                        "type": "sent",
                        "client_id": client_id,
                        "id": message_id,
                        "position": position,
                    }
                )
            )

    def _push_failed(self, client_id: str, error: RefusedError) -> None:
        answer = {"type": "failed", "client_id": client_id, "reason": error.reason}
        self._device.push(encode_frame({**answer, "field": error.field, "retry": error.retry}))

    def _push_error(self, error: RefusedError) -> None:
        answer = {"type": "error", "field": error.field, "reason": error.reason}
        self._device.push(encode_frame({**answer, "retry": error.retry}))


async def serve_socket(
    chat: Chat, user: ChatUser, session: bytes, request: web.Request
) -> web.WebSocketResponse:
    """Turn a request into a WebSocket of a user, and serve it until it or its session ends."""
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, compress=False, max_msg_size=FRAME_MAX_BYTES
    )
    await socket.prepare(request)
    transport = request.transport
    if transport is None:
        return socket
    device = SocketDevice(socket, transport)
    device.session = session
    online = chat.connect(user, device)
    try:
        await Conversationalist(chat, online, device).run(socket)
    finally:
        chat.disconnect(online, device)
    return socket


async def refuse_socket(request: web.Request) -> web.WebSocketResponse:
    """Close the WebSocket of a browser without a session by a code: a script does not see the status of a handshake."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.close(code=SIGNED_OUT_CODE, message=b"choose a name first")
    return socket
