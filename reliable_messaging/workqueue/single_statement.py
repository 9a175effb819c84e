"""PostgreSQL: acknowledge what is done and claim what is next in one statement, in autocommit.

    WITH acked   AS (those that still have our token → done),
         due     AS (the next due ids of a lane, locked; what others have locked is skipped),
         claimed AS (exactly these → claimed)
    how many were acknowledged, and then the claimed rows

One round trip and one commit for a whole batch. It promises what the portable path promises: the same
comparisons stand in the same places, and one suite of tests runs over both. No row is touched twice:
``acked`` wants claimed ones, ``due`` ready ones.

Only for plain acknowledgements: what fails, or has a result to keep, goes the portable way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import DateTimeField, JSONField

from .. import clock, codec
from ..conf import get_settings
from ..models import Status, WorkItem
from . import kept_plans
from .lane import Lane
from .settle import had_trouble
from .settlement import Ack, Settlement

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What to take, and as whom."""

    lane: Lane
    limit: int
    lease: timedelta
    owner_token: UUID
    worker_id: UUID | None


def can_serve(using: str) -> bool:
    """By its name: no feature flag tells of UPDATE … RETURNING inside WITH, and no other database has it."""
    return connections[using].vendor == "postgresql" and get_settings().FAST_PATH


def can_tell(settlement: Settlement, *, keep_done: bool) -> bool:
    """Whether it fits into the statement. The failures of a message that is deleted do not."""
    return (
        isinstance(settlement, Ack)
        and settlement.result is None
        and (keep_done or not had_trouble(settlement.item))
    )


def exchange(
    model: type[WorkItem], using: str, done: Sequence[Any], claim: Claim | None, *, keep_done: bool
) -> tuple[list[Any], list[Any]]:
    """Acknowledge what is done, and claim; returns what was claimed, in order, and what was lost."""
    shape = _Shape(
        acks=bool(done),
        keep_done=keep_done,
        claims=claim is not None,
        marked=claim is not None and claim.lane.mark is not None,
    )
    sql = _sql(model, using, shape, clock.travelled())
    rows = kept_plans.execute(connections[using], sql, _parameters(model, done, claim))
    # The head is the only one that has a number of acknowledged rows.
    head = next(row for row in rows if row[0] is not None)
    lost = [] if head[0] == len(done) else _missing(done, head[1])
    if claim is None:
        return [], lost
    found = [row[HEAD:] for row in rows if row[0] is None]
    return _items(model, using, found, claim, claimed_at=_moment(head[2])), lost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What of the statement is there."""

    acks: bool
    keep_done: bool
    claims: bool
    marked: bool


HEAD = 3
"""Columns of the first row: how many were acknowledged, which ones if not all were, and the time."""


@lru_cache(maxsize=64)
def _sql(model: type[WorkItem], using: str, shape: _Shape, travelled: timedelta) -> str:
    now = "statement_timestamp()"
    if travelled:
        now = f"({now} + interval '{travelled.total_seconds()} seconds')"
    table = connections[using].ops.quote_name(model._meta.db_table)
    parts = []
    if shape.acks:
        parts.append(f"acked AS ({_ack_sql(table, now, keep=shape.keep_done)})")
    if shape.claims:
        parts.append(f"due AS MATERIALIZED ({_due_sql(model, using, table, now, marked=shape.marked)})")
        parts.append(f"claimed AS ({_claim_sql(model, table, now)})")
    matched = "0, NULL"
    if shape.acks:  # a subquery is worked out only when it is asked for
        which = "(SELECT array_agg(id::text || token::text) FROM acked)"
        matched = f"count(*), CASE WHEN count(*) < %s THEN {which} END"
    head = f"SELECT {matched}, {_microseconds(now)}"
    source = " FROM acked" if shape.acks else ""
    if not shape.claims:
        return f"WITH {', '.join(parts)} {head}{source}"
    nothing = ", NULL" * len(model.claim_columns)
    return (
        f"WITH {', '.join(parts)} {head}{nothing}{source} "
        f"UNION ALL SELECT {', '.join(['NULL'] * HEAD)}, claimed.* FROM claimed"
    )


def _ack_sql(table: str, now: str, *, keep: bool) -> str:
    # By pairs: with the tokens as a second list, a stale one would be let in by another's.
    ours = "unnest(%s::uuid[], %s::uuid[]) AS ours (id, token)"
    # It is to look the ids up. Without the list of them, it might walk all ids of a small table, and go on
    # when it has grown. And + 0, or it may take the index of leases and walk that, with the entries of
    # what was claimed before.
    fence = (
        f"item.id = ANY(%s::uuid[]) AND item.id = ours.id AND item.status + 0 = {Status.CLAIMED.value} "
        "AND item.owner_token = ours.token"
    )
    if not keep:
        return f"DELETE FROM {table} AS item USING {ours} WHERE {fence} RETURNING ours.*"
    return (
        f"UPDATE {table} AS item SET status = {Status.DONE.value}, owner_token = NULL, leased_until = NULL, "
        f"transient_failures = 0, first_failed_at = NULL, finished_at = {now} "
        f"FROM {ours} WHERE {fence} RETURNING ours.*"
    )


def _due_sql(model: type[WorkItem], using: str, table: str, now: str, *, marked: bool) -> str:
    claimable = _claimable(model, using)
    mark = "AND (due_at, id) > (%s, %s) " if marked else ""
    # Locked here, and updated by id: an UPDATE over a LIMITed subquery may take the same row twice.
    return (
        f"SELECT id FROM {table} WHERE {claimable} AND status = {Status.READY.value} AND crashes = 0 "
        f"AND queue = %s AND priority = %s AND due_at <= {now} "
        f"AND (expires_at IS NULL OR expires_at > {now}) {mark}"
        "ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED"
    )


def _claim_sql(model: type[WorkItem], table: str, now: str) -> str:
    leaves = "".join(f", {column} = %s" for column in model.ready_only)
    columns = ", ".join(sql for sql, _ in _columns(model))
    return (
        f"UPDATE {table} AS item SET status = {Status.CLAIMED.value}, owner_token = %s, claimed_by = %s, "
        f"leased_until = {now} + %s, attempts = item.attempts + 1, last_attempt_at = {now}{leaves} "
        f"WHERE item.id = ANY(ARRAY(SELECT id FROM due)) RETURNING {columns}"
    )


def _parameters(model: type[WorkItem], done: Sequence[Any], claim: Claim | None) -> list[Any]:
    """In the order in which the statement asks for them."""
    values: list[Any] = []
    if done:
        ids = _array([item.id for item in done])
        values += [ids, _tokens(done), ids]
    if claim is not None:
        lane = claim.lane
        values += [lane.queue, lane.priority, *(lane.mark or ()), claim.limit]
        values += [claim.owner_token, claim.worker_id, claim.lease, *model.ready_only.values()]
    if done:
        values.append(len(done))
    return values


def _claimable(model: type[WorkItem], using: str) -> str:
    """What else must hold for a plain claim, as SQL. With its values in it: it is the condition of the claim
    index, and a kept plan would not know what a parameter is going to be."""
    if not model.claimable:
        return "true"
    query = model._base_manager.using(using).all().query
    operations: Any = connections[using].ops
    sql, params = query.get_compiler(using=using).compile(query.build_where(model.claimable))
    return str(operations.compose_sql(sql, params)).replace("%", "%%")


@lru_cache(maxsize=16)
def _columns(model: type[WorkItem]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """What a claim reads: each column as SQL, and what makes its value of the answer.

    Times as whole microseconds: Django lets psycopg parse texts in Python, at five times the cost.
    """
    found: list[tuple[str, Callable[[Any], Any] | None]] = []
    for name in model.claim_columns:
        field = model._meta.get_field(name)
        if isinstance(field, DateTimeField):
            found.append((_microseconds(f"item.{name}"), _moment))
        elif isinstance(field, JSONField):
            found.append((f"item.{name}::text", _decoded))
        else:
            found.append((f"item.{name}", None))
    return tuple(found)


def _microseconds(moment: str) -> str:
    # Not extract(): that makes a numeric, which takes the server longer than all else about a row. This
    # is exact until the year 2242.
    return f"(date_part('epoch', {moment}) * 1000000)::bigint"


@lru_cache(maxsize=128)  # most are due when they are made
def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)


def _decoded(text: str) -> Any:
    return {} if text == "{}" else codec.decode(text)


def _items(
    model: type[WorkItem], using: str, rows: list[Any], claim: Claim, *, claimed_at: datetime | None
) -> list[Any]:
    id_at, due_at = model.claim_columns.index("id"), model.claim_columns.index("due_at")
    rows.sort(key=itemgetter(due_at, id_at))  # RETURNING promises no order
    converted = [(at, convert) for at, (_, convert) in enumerate(_columns(model)) if convert is not None]
    items = []
    for row in map(list, rows):
        for at, convert in converted:
            row[at] = convert(row[at])
        items.append(
            model.claimed_value(row, owner_token=claim.owner_token, claimed_at=claimed_at, using=using)
        )
    return items


def _missing(done: Sequence[Any], matched: Sequence[str] | None) -> list[Any]:
    ours = set(matched or ())
    return [item for item in done if f"{item.id}{item.owner_token}" not in ours]


def _array(ids: Sequence[UUID | None]) -> str:
    """As a literal: dumped one by one, they would cost more than the rest of the statement."""
    return "{" + ",".join(["NULL" if value is None else value.hex for value in ids]) + "}"


def _tokens(done: Sequence[Any]) -> str:
    token = done[0].owner_token
    if all(item.owner_token is token for item in done):  # of one claim, as a rule
        return "{" + ",".join([_array([token])[1:-1]] * len(done)) + "}"
    return _array([item.owner_token for item in done])
