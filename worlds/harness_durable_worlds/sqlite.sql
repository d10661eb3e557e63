-- The SQLite World's schema and statements, by name. Read by _sqlite_sql.py.
--
-- Why it looks like this:
--   * One database for all sessions of all apps; `app` leads every key, so that apps never meet (W13).
--   * `event` is an ordinary table with a unique index. WITHOUT ROWID was measured at four times the bytes,
--     because records of interleaved sessions split its pages; here they go to the end, in commit order.
--   * unique(app, sid, seq) is the compare-and-set of last resort. The first is `session.head`, read and
--     written inside BEGIN IMMEDIATE, where no other writer of this file can be.
--   * `session` is the queue, too: a row with a `due` can be claimed. `session_due` finds the free ones
--     (owner is null) and those of each owner, longest due first; parked sessions are not in it.
--   * SQLite keeps no checksum of a row, so `crc` does: over every other column of the record.
--   * Liveness of owners is not in here: see _liveness.py (a lock file per worker, beside the database).
--   * user_version counts the migrations that were applied; application_id says that the file is ours.
--
-- Migrations only go forward and are never edited once released; each runs in one transaction.

-- :migration 1
create table session (
    app text not null, sid text not null,
    head int not null, epoch int not null,
    status text not null, due int,                                -- due in ms, null: parked
    created int not null, updated int not null,                   -- ms
    owner text, owner_host text, owner_pid int,
    unique (app, sid)
) strict;
create index session_due on session (app, owner, due) where due is not null;
create table event (
    id integer primary key,
    app text not null, sid text not null, seq int not null,
    epoch int not null, rid text not null, kind text not null, time int not null,
    body blob not null, crc int not null,
    unique (app, sid, seq)
) strict;
create table blob (
    app text not null, sid text not null, sha text not null, body blob not null, crc int not null,
    unique (app, sid, sha)
) strict;
create table snapshot (
    app text not null, sid text not null, seq int not null, body blob not null, crc int not null,
    unique (app, sid)
) strict;
create table progress (app text not null, sid text not null, body blob not null, unique (app, sid)) strict;
create table settled (id integer primary key, times int not null) strict;
insert into settled values (1, 0);

-- :name select_session
select head, epoch, status, due, created, updated, owner, owner_host, owner_pid from session where app = ? and sid = ?

-- :name select_sessions
select sid, head, epoch, status, due, created, updated, owner, owner_host, owner_pid from session
where app = ? and sid > ? order by sid limit ?

-- :name select_head
select head, epoch from session where app = ? and sid = ?

-- :name insert_session
insert into session (app, sid, head, epoch, status, due, created, updated) values (?, ?, ?, ?, ?, ?, ?, ?)

-- :name move_head
update session set head = ?, updated = ? where app = ? and sid = ?

-- :name move_head_and_row
update session set head = ?, updated = ?, status = ?, due = ? where app = ? and sid = ?

-- :name insert_event
insert into event (app, sid, seq, epoch, rid, kind, time, body, crc) values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name select_events
select seq, epoch, rid, kind, time, body, crc from event where app = ? and sid = ? and seq > ? order by seq limit ?

-- :name select_event
select seq, epoch, rid, kind, time, body, crc from event where app = ? and sid = ? and seq = ?

-- :name select_ids
select rid from event where app = ? and sid = ? and seq > ? order by seq limit ?

-- :name scan_events
select seq, epoch, rid, kind, time, body, crc from event where id = ? and +app = ? and +sid = ?

-- :name last_id
select max(id) from event

-- :name insert_blob
insert or ignore into blob (app, sid, sha, body, crc) values (?, ?, ?, ?, ?)

-- :name select_blob
select body, crc from blob where app = ? and sid = ? and sha = ?

-- :name has_blob
select 1 from blob where app = ? and sid = ? and sha = ?

-- :name select_blob_names
select sha from blob where app = ? and sid = ? and sha > ? order by sha limit 100

-- :name next_owner
select owner from session where app = ? and owner > ? and due is not null order by owner limit 1

-- :name select_free_due
select sid, due from session where app = ? and owner is null and due <= ? order by due limit ?

-- :name select_owned_due
select sid, due from session where app = ? and owner = ? and due <= ? order by due limit ?

-- :name next_due
select min(due) from session where app = ? and owner is null and due is not null

-- :name claim
update session set head = ?, epoch = ?, updated = ?, owner = ?, owner_host = ?, owner_pid = ?
where app = ? and sid = ?

-- :name release
update session set owner = null, owner_host = null, owner_pid = null, due = iif(due is null, null, ifnull(?, due))
where app = ? and sid = ? and epoch = ?

-- :name put_snapshot
insert into snapshot (app, sid, seq, body, crc) values (?, ?, ?, ?, ?)
on conflict (app, sid) do update set seq = excluded.seq, body = excluded.body, crc = excluded.crc

-- :name select_snapshot
select seq, body, crc from snapshot where app = ? and sid = ?

-- :name put_progress
insert into progress (app, sid, body) values (?, ?, ?) on conflict (app, sid) do update set body = excluded.body

-- :name select_progress
select body from progress where app = ? and sid = ?

-- :name delete_events
delete from event where app = ? and sid = ?

-- :name delete_blobs
delete from blob where app = ? and sid = ?

-- :name delete_snapshot
delete from snapshot where app = ? and sid = ?

-- :name delete_progress
delete from progress where app = ? and sid = ?

-- :name delete_session
delete from session where app = ? and sid = ?

-- :name settle
update settled set times = times + 1
