"""The tables of the read model.

`messages` and `changes` are made from the history: with the vector in `progress` they can be made again. The other
tables are the server's own: users, sessions, conversations and what each user has read.
"""

from typing import Final

SCHEMA_VERSION: Final = 1

SCHEMA: Final = """
create table if not exists progress (
    id integer primary key check (id = 1), vector text not null, position integer not null
);
create table if not exists messages (
    position integer primary key,
    id text not null unique,
    conversation text not null,
    author_id text not null,
    author_name text not null,
    client_id text not null,
    text text not null,
    time_ms integer not null,
    thread text,
    quote text,
    edited_ms integer,
    deleted integer not null default 0,
    changed integer not null
);
create index if not exists messages_of_conversation on messages (conversation, position);
create index if not exists changes_of_conversation on messages (conversation, changed);
create virtual table if not exists words using fts5(
    text, content='messages', content_rowid='position', tokenize='unicode61 remove_diacritics 2'
);
create table if not exists changes (id text primary key, position integer not null) without rowid;
create table if not exists conversations (
    key text primary key, created_ms integer not null, last_position integer not null default 0
) without rowid;
create table if not exists users (
    id text primary key, name text not null, created_ms integer not null
) without rowid;
create table if not exists sessions (
    digest blob primary key, user_id text not null, created_ms integer not null
) without rowid;
create index if not exists sessions_of_user on sessions (user_id);
create table if not exists members (
    user_id text not null, conversation text not null, read_position integer not null default 0,
    primary key (user_id, conversation)
) without rowid;
create index if not exists members_of_conversation on members (conversation);
"""
