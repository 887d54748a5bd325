"""A chat on feeds and integration patterns: `recado chat` (docs/chat.md).

names, conversation      what users may type; the names of conversations
messages, frames         messages, and what browsers and the server say to each other
read_model, schema       everything that pages show, in SQLite, made from the history
history                  the feed of the history: publishing, and applying it to the read model
broker_link              the objects on the broker
traffic, drawer          the record of what happens to them, and who sees it
presentation             a message as the bytes that all its readers share
device                   browsers and bots as receivers of messages
directory, broadcasts    users and conversations in memory, and news about them
chat                     what users do
welcome, delivery, acks  what devices get, at first, live and missed
socket, site, sessions   WebSockets, HTTP and cookies
bots, talk               users that make a demo lively
server                   the parts put together
"""
