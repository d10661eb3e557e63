-- The Postgres World's schema and statements, by name. Read by _postgres_sql.py, which puts the schema's name
-- for `hd.`, and for {now} the server's clock in ms (of the statement's start, so that an index can use it).
--
-- Why it looks like this:
--   * Every key begins with the session, so that rows of one session stay together and sessions spread: over
--     hash partitions, Citus shards, ranges. `app` is in every key, so that apps never meet (W13). No sequence,
--     foreign key, trigger, function, extension or session state; no advisory lock but for migrations.
--   * The log is the fence. `append` locks the session's row, compares head and epoch *of the locked row*, and
--     moves the head in the same statement; the primary key (session, app, seq) is the last resort. An epoch
--     that is merely read in the statement does not fence: the reader sees a snapshot from before the claim.
--   * `append` is one statement for all sessions of a process, without an explicit transaction: one round trip,
--     one sync, and no moment at which a stopped process could hold a lock. Jobs that do not fit are left out
--     of it, and named by their absence from the answer. Rows are locked in the order of the jobs, which is that
--     of their sessions' names, so that two groups never wait for each other; and one by one (lateral), so that
--     no plan made for a small table ever locks by reading a large one.
--   * `session` is the queue, too. `due` is what the caller said, by its wall clock; `due_at` the same moment
--     by the server's (_postgres_clock.py). A `due` of 0 is world.NOW: it is stamped here. Parked sessions (null) are in neither queue index, and cost nothing.
--   * Liveness is a row per worker: a lease by the server's clock, the server process behind a connection that
--     is closed when the worker dies, and where the worker's own process runs (_postgres_liveness.py).
--   * A blob up to 256 KiB is in its row; a larger one is in pieces that are written ahead, and named by the
--     append. Bytes are bytea, uncompressed by the server: they are compressed already, or not worth it.
--   * What may be lost (notifications, progress, snapshots) does not wait for the disk: `synchronous_commit` is
--     off for that one transaction, which a pooler cannot mix up. Connections of our own plan a statement once
--     (`limits`): with arrays of one element, the server would plan most of them at every call.
--   * `crc` covers every other column of a record, as in the other Worlds: the server's own checksums are off
--     by default before version 18.
--
-- Migrations only go forward and are never edited once released; each runs in one transaction.

-- :migration 1
create table hd.session (
    session text collate "C" not null, app text collate "C" not null,
    head bigint not null, epoch bigint not null, status text not null,
    due bigint, due_at bigint,                                       -- ms; both null: parked
    created bigint not null, updated bigint not null,                -- ms
    owner text collate "C", host text, pid bigint,
    primary key (session, app)
) with (fillfactor = 70);
create index session_by_app on hd.session (app, session);
create index session_free on hd.session (app, due_at, session) where owner is null and due_at is not null;
create index session_owned on hd.session (app, owner, due_at) where owner is not null and due_at is not null;
create table hd.event (
    session text collate "C" not null, app text collate "C" not null, seq bigint not null,
    epoch bigint not null, id text not null, kind text not null, time bigint not null,
    crc bigint not null, body bytea not null,
    primary key (session, app, seq)
);
alter table hd.event alter column body set storage external;
create table hd.blob (
    session text collate "C" not null, app text collate "C" not null, sha text collate "C" not null,
    size bigint not null, crc bigint not null,
    object text,                                                     -- names its pieces, if it has any
    body bytea,
    primary key (session, app, sha)
);
alter table hd.blob alter column body set storage external;
create table hd.piece (
    session text collate "C" not null, app text collate "C" not null, object text collate "C" not null,
    part bigint not null, body bytea not null,
    primary key (session, app, object, part)
);
alter table hd.piece alter column body set storage external;
create table hd.snapshot (
    session text collate "C" not null, app text collate "C" not null,
    seq bigint not null, crc bigint not null, body bytea not null,
    primary key (session, app)
);
create unlogged table hd.progress (
    session text collate "C" not null, app text collate "C" not null, body bytea not null,
    primary key (session, app)
);
create table hd.worker (
    id text collate "C" not null, app text collate "C" not null,
    process text not null,                                           -- machine, PID namespace, pid, start
    lease bigint not null, lease_until bigint not null,              -- ms, the server's clock
    backend bigint, backend_start text, server_start text,           -- of the connection that dies with it
    primary key (id, app)
);
create index worker_by_app on hd.worker (app);

-- ------------------------------------------------------------------------------------- this connection

-- :name identify
select pg_backend_pid(), extract(epoch from pg_postmaster_start_time())::text,
    (select extract(epoch from backend_start)::text from pg_stat_activity where pid = pg_backend_pid()),
    {now}, pg_is_in_recovery(), current_user::text, current_database()::text

-- :name settings
select current_setting('server_version'), current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('full_page_writes'), pg_is_in_recovery()

-- :name limits
select set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),
    set_config('idle_in_transaction_session_timeout', $2, false),
    case when current_setting('plan_cache_mode', true) is not null   -- servers of another make lack it
         then set_config('plan_cache_mode', 'force_generic_plan', false)  -- or most are planned at every call
    end

-- :name schema_exists
select exists (
    select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relname = 'migration')

-- :name schema_known
select 1 from pg_namespace where nspname = $1

-- :name schema_version
select coalesce(max(version), 0) from hd.migration

-- :name notify
select set_config('synchronous_commit', 'off', true), pg_notify($1, $2)

-- ---------------------------------------------------------------------------------------- the log

-- :name append
with job as (
    select * from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::boolean[], $8::text[], $9::bigint[], $10::bigint[])
        as job (session, head, epoch, count, updated, has_row, status, due, due_at)
), locked as materialized (
    select job.*, s.app from job cross join lateral (
        select s.app from hd.session s
        where s.session = job.session and s.app = $1
            and s.head = job.head and (job.epoch = 0 or job.epoch = s.epoch)
        for no key update of s
    ) s
), moved as (
    update hd.session s set
        head = l.head + l.count, updated = l.updated,
        status = case when l.has_row then l.status else s.status end,
        due = case when not l.has_row then s.due when l.due = 0 then {now} else l.due end,
        due_at = case when not l.has_row then s.due_at when l.due = 0 then {now} else l.due_at end
    from locked l where s.session = any($2::text[]) and s.session = l.session and s.app = l.app
    returning s.session, s.owner is null and s.due_at is not null as free
), stored as (
    insert into hd.blob (session, app, sha, size, crc, object, body)
    select b.session, $1, b.sha, b.size, b.crc, b.object, b.body
    from unnest($11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::bytea[])
        as b (session, sha, size, crc, object, body) join moved using (session)
    on conflict do nothing
), written as (
    insert into hd.event (session, app, seq, epoch, id, kind, time, crc, body)
    select e.session, $1, e.seq, e.epoch, e.id, e.kind, e.time, e.crc, e.body
    from unnest($17::text[], $18::bigint[], $19::bigint[], $20::text[], $21::text[], $22::bigint[],
                $23::bigint[], $24::bytea[])
        as e (session, seq, epoch, id, kind, time, crc, body) join moved using (session)
)
select session, free from moved

-- :name create
with made as (
    insert into hd.session (session, app, head, epoch, status, due, due_at, created, updated)
    values ($2, $1, $3, 0, $4, case when $5::bigint = 0 then {now} else $5::bigint end,
            case when $5::bigint = 0 then {now} else $6::bigint end, $7, $7)
    on conflict do nothing
    returning session
), written as (
    insert into hd.event (session, app, seq, epoch, id, kind, time, crc, body)
    select e.session, $1, e.seq, e.epoch, e.id, e.kind, e.time, e.crc, e.body
    from unnest($8::text[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::bigint[],
                $14::bigint[], $15::bytea[])
        as e (session, seq, epoch, id, kind, time, crc, body) join made using (session)
)
select session from made

-- :name verdict
select s.head, s.epoch, array(
    select e.id from hd.event e where e.session = $2 and e.app = $1 and e.seq > $3 order by e.seq limit $4)
from hd.session s where s.session = $2 and s.app = $1

-- :name read
select q.place, s.head, e.seq, e.epoch, e.id, e.kind, e.time, e.body, e.crc
from unnest($2::text[], $3::bigint[], $4::bigint[]) with ordinality as q (session, after, count, place)
cross join lateral (select head from hd.session s where s.session = q.session and s.app = $1 offset 0) s
left join lateral (
    select * from hd.event e
    where e.session = q.session and e.app = $1 and e.seq > q.after order by e.seq limit q.count
) e on true
order by q.place, e.seq

-- :name heads
select session, head from hd.session where app = $1 and session = any($2::text[])

-- :name row
select session, head, epoch, status, due, created, updated, owner, host, pid
from hd.session where session = $2 and app = $1

-- :name rows
select session, head, epoch, status, due, created, updated, owner, host, pid
from hd.session where app = $1 and session > $2 order by session limit $3

-- ------------------------------------------------------------------------------- blobs and caches

-- :name put_piece
insert into hd.piece (session, app, object, part, body) values ($2, $1, $3, $4, $5) on conflict do nothing

-- :name drop_unnamed_pieces
delete from hd.piece p where p.session = $2 and p.app = $1 and p.object = any($3::text[]) and not exists (
    select 1 from hd.blob b where b.session = $2 and b.app = $1 and b.object = p.object)

-- :name known_blobs
select sha from hd.blob where session = $2 and app = $1 and sha = any($3::text[])

-- :name blob
select size, crc, object, body from hd.blob where session = $2 and app = $1 and sha = $3

-- :name piece
select body from hd.piece where session = $2 and app = $1 and object = $3 and part = $4

-- :name blob_names
select sha from hd.blob where session = $2 and app = $1 and sha > $3 order by sha limit 100

-- :name put_snapshot
insert into hd.snapshot (session, app, seq, crc, body)
select session, app, $3::bigint, $4::bigint, $5::bytea from hd.session where session = $2 and app = $1
for key share
on conflict (session, app) do update set seq = excluded.seq, crc = excluded.crc, body = excluded.body
returning set_config('synchronous_commit', 'off', true)

-- :name snapshot
select c.seq, c.body, c.crc from hd.session s left join hd.snapshot c on c.session = s.session and c.app = s.app
where s.session = $2 and s.app = $1

-- :name put_progress
insert into hd.progress (session, app, body)
select s.session, $1, p.body from unnest($2::text[], $3::bytea[]) as p (session, body) cross join lateral (
    select s.session from hd.session s where s.session = p.session and s.app = $1 for key share of s
) s
on conflict (session, app) do update set body = excluded.body
returning session, set_config('synchronous_commit', 'off', true)

-- :name progress
select c.body from hd.session s left join hd.progress c on c.session = s.session and c.app = s.app
where s.session = $2 and s.app = $1

-- ------------------------------------------------------------------------------------- the queue

-- :name free_due
select min(due_at) - {now} from hd.session where app = $1 and owner is null and due_at is not null

-- :name owners
with recursive found as (
    (select owner from hd.session where app = $1 and owner is not null and due_at is not null
     order by owner limit 1)
    union all
    select (select s.owner from hd.session s
            where s.app = $1 and s.owner > found.owner and s.owner is not null and s.due_at is not null
            order by s.owner limit 1)
    from found where found.owner is not null
)
select owner from found where owner is not null

-- :name owned_due
select min(due_at) - {now} from hd.session where app = $1 and owner = any($2::text[]) and due_at is not null

-- :name waiting_free
select session, due, due_at from hd.session
where app = $1 and owner is null and due_at <= {now}
order by due_at, session limit $2

-- :name waiting_owned
select session, due, due_at from hd.session
where app = $1 and owner = any($3::text[]) and due_at <= {now}
order by due_at, session limit $2

-- :name lock_free
select session, head, epoch, owner, host, pid, due_at from hd.session
where app = $1 and owner is null and due_at <= {now}
order by due_at, session limit $2
for no key update skip locked

-- :name lock_owned
select session, head, epoch, owner, host, pid, due_at from hd.session
where app = $1 and owner = any($3::text[]) and due_at <= {now}
order by due_at, session limit $2
for no key update skip locked

-- :name lock_one
select session, head, epoch, owner, host, pid, due_at from hd.session
where session = $2 and app = $1
for no key update

-- :name lock_all
select session, head, epoch, owner, host, pid, due_at from hd.session
where session = $2 and app = $1
for update

-- :name take
with claim as (
    select * from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[],
                         $8::bigint[], $9::bytea[])
        as c (session, seq, epoch, id, kind, time, crc, body)
), moved as (
    update hd.session s set
        head = c.seq, epoch = c.epoch, updated = c.time, owner = $10, host = $11, pid = $12::bigint
    from claim c
    where s.session = c.session and s.app = $1 and s.head = c.seq - 1 and s.epoch = c.epoch - 1
    returning s.session
), written as (
    insert into hd.event (session, app, seq, epoch, id, kind, time, crc, body)
    select c.session, $1, c.seq, c.epoch, c.id, c.kind, c.time, c.crc, c.body
    from claim c join moved using (session)
)
select session, {now} from moved

-- :name landed
select e.session from hd.event e join unnest($2::text[], $3::bigint[], $4::text[]) as c (session, seq, id)
    on e.session = c.session and e.seq = c.seq and e.id = c.id
where e.app = $1

-- :name release
update hd.session set owner = null, host = null, pid = null,
    due = case when due is null or $4::bigint is null then due
               when $4::bigint = 0 then {now} else $4::bigint end,
    due_at = case when due is null or $4::bigint is null then due_at
                  when $4::bigint = 0 then {now} else $5::bigint end
where session = $2 and app = $1 and epoch = $3
returning due_at is not null

-- :name give_back
update hd.session s set owner = null, host = null, pid = null
from unnest($2::text[], $3::bigint[], $4::text[]) as c (session, seq, id)
where s.session = c.session and s.app = $1 and exists (
    select 1 from hd.event e
    where e.session = s.session and e.app = $1 and e.seq = c.seq and e.id = c.id and e.epoch = s.epoch)
returning s.session

-- ------------------------------------------------------------------------------------ the workers

-- :name register
insert into hd.worker (id, app, process, lease, lease_until, backend, backend_start, server_start)
values ($2, $1, $3, $4::bigint, {now} + $4::bigint, $5::bigint, $6::text, $7::text)
on conflict (id, app) do update set
    process = excluded.process, lease = excluded.lease, lease_until = excluded.lease_until,
    backend = excluded.backend, backend_start = excluded.backend_start, server_start = excluded.server_start
returning {now}

-- :name renew
update hd.worker set process = $3, lease = $4::bigint, lease_until = {now} + $4::bigint,
    backend = $5::bigint, backend_start = $6::text, server_start = $7::text
where id = $2 and app = $1
returning {now}

-- :name unregister
delete from hd.worker where app = $1 and id = any($2::text[]) returning id

-- :name forget_workers
delete from hd.worker where app = $1 and lease_until < {now} - $2::bigint

-- :name workers
with backend as materialized (
    select pid, extract(epoch from backend_start)::text as started from pg_stat_activity
)
select w.id, w.process, w.lease_until - {now},
    case when w.backend is null
              or w.server_start <> extract(epoch from pg_postmaster_start_time())::text then null
         else exists (select 1 from backend b where b.pid = w.backend
                      and (b.started is null or b.started = w.backend_start)) end,
    w.backend || '@' || w.backend_start
from hd.worker w where w.app = $1

-- -------------------------------------------------------------------------------- whole sessions

-- :name restore
insert into hd.session (session, app, head, epoch, status, due, due_at, created, updated)
values ($2, $1, $3, $4, $5, case when $6::bigint = 0 then {now} else $6::bigint end,
        case when $6::bigint = 0 then {now} else $7::bigint end, $8, $9)
on conflict do nothing
returning 1

-- :name restore_events
insert into hd.event (session, app, seq, epoch, id, kind, time, crc, body)
select e.session, $1, e.seq, e.epoch, e.id, e.kind, e.time, e.crc, e.body
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
            $9::bytea[]) as e (session, seq, epoch, id, kind, time, crc, body)

-- :name put_blob
insert into hd.blob (session, app, sha, size, crc, object, body) values ($2, $1, $3, $4, $5, $6, $7)
on conflict do nothing

-- :name delete_event
delete from hd.event where session = $2 and app = $1

-- :name delete_blob
with gone as (delete from hd.blob where session = $2 and app = $1 returning 1) select count(*) from gone

-- :name delete_piece
delete from hd.piece where session = $2 and app = $1

-- :name delete_snapshot
delete from hd.snapshot where session = $2 and app = $1

-- :name delete_progress
delete from hd.progress where session = $2 and app = $1

-- :name delete_session
delete from hd.session where session = $2 and app = $1

-- ----------------------------------------------------------------- only to hurt it, for the suite

-- :name fail_full
do $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$

-- :name spoil
update hd.event set body = decode(repeat('00', octet_length(body)), 'hex')
where session = $2 and app = $1 and seq = $3 returning seq

-- :name last_append
select seq from hd.event
where session = $2 and app = $1 and xmin = (
    select xmin from hd.event where session = $2 and app = $1 order by seq desc limit 1)
order by seq

-- :name undo_append
with gone as (delete from hd.event where session = $2 and app = $1 and seq >= $3)
update hd.session set head = $3 - 1 where session = $2 and app = $1
