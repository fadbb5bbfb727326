-- What each version of the schema brought, as SQLite was told it when the version was new. A store of any of them is taken up.

-- version 0001
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE conversations (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    hint TEXT NOT NULL,
    parent TEXT NOT NULL,
    parent_entry TEXT NOT NULL,
    created BIGINT NOT NULL,
    mode TEXT NOT NULL,
    newest BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX conversations_by_age ON conversations (created);
CREATE INDEX conversations_by_hint ON conversations (tenant, hint, created);
CREATE TABLE entries (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    id TEXT NOT NULL,
    parent TEXT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    thread TEXT NOT NULL,
    adopts TEXT NOT NULL,
    alias TEXT NOT NULL,
    created BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, id)
);
CREATE TABLE rounds (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    turn TEXT NOT NULL,
    number BIGINT NOT NULL,
    results BIGINT NOT NULL,
    last INTEGER NOT NULL,
    finish TEXT NOT NULL,
    usage TEXT,
    model TEXT NOT NULL,
    complete INTEGER NOT NULL,
    hidden_truncated INTEGER NOT NULL,
    extra TEXT NOT NULL,
    created BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, turn, number)
);
CREATE TABLE messages (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    entry TEXT NOT NULL,
    round BIGINT NOT NULL,
    position BIGINT NOT NULL,
    role TEXT NOT NULL,
    wire BLOB NOT NULL,
    identity TEXT NOT NULL,
    text TEXT,
    calls TEXT NOT NULL,
    answers TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    final INTEGER NOT NULL,
    PRIMARY KEY (tenant, conversation, entry, round, position)
);
CREATE TABLE events (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    entry TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    round BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    data TEXT NOT NULL,
    created BIGINT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, entry, kind, subject)
);
CREATE INDEX events_by_subject ON events (subject, kind, tenant);
CREATE TABLE threads (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    id TEXT NOT NULL,
    system_hash TEXT NOT NULL,
    tool_names TEXT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, id)
);
CREATE TABLE anchors (
    tenant TEXT NOT NULL,
    hint TEXT NOT NULL,
    "key" TEXT NOT NULL,
    conversation TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (tenant, hint, "key", conversation)
)
 WITHOUT ROWID;
CREATE INDEX anchors_by_age ON anchors (tenant, hint, "key", created);
CREATE INDEX anchors_by_conversation ON anchors (tenant, conversation);
CREATE TABLE requests (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    conversation TEXT NOT NULL,
    thread TEXT NOT NULL,
    frame TEXT NOT NULL,
    entry TEXT NOT NULL,
    created BIGINT NOT NULL,
    status TEXT NOT NULL,
    receipt TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX requests_by_age ON requests (created);
CREATE INDEX requests_by_conversation ON requests (conversation, created);
CREATE INDEX requests_by_id ON requests (id);
CREATE TABLE sent (
    tenant TEXT NOT NULL,
    request TEXT NOT NULL,
    round BIGINT NOT NULL,
    body BLOB NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (tenant, request, round)
);
CREATE TABLE blobs (
    tenant TEXT NOT NULL,
    digest BLOB NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (tenant, digest)
);
CREATE TABLE holds (
    tenant TEXT NOT NULL,
    holder TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (tenant, holder, digest)
)
 WITHOUT ROWID;
CREATE INDEX holds_by_digest ON holds (tenant, digest);
CREATE TABLE meta (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- version 0002
ALTER TABLE conversations ADD COLUMN dialect TEXT DEFAULT 'openai_chat' NOT NULL;
ALTER TABLE threads ADD COLUMN tools_hash TEXT DEFAULT '' NOT NULL;
ALTER TABLE threads ADD COLUMN model TEXT DEFAULT '' NOT NULL;

-- version 0003
CREATE TABLE queued (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    id TEXT NOT NULL,
    lane TEXT NOT NULL,
    thread TEXT NOT NULL,
    text TEXT NOT NULL,
    state TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    settled BIGINT NOT NULL,
    entry TEXT NOT NULL,
    place BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, id)
);

-- version 0004
CREATE TABLE task_rows (
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    id TEXT NOT NULL,
    parent_id TEXT,
    goal TEXT NOT NULL,
    status TEXT DEFAULT 'active' NOT NULL,
    result TEXT,
    depth INTEGER DEFAULT '0' NOT NULL,
    created_at BIGINT NOT NULL,
    completed_at BIGINT,
    valid_from BIGINT NOT NULL,
    valid_to BIGINT,
    PRIMARY KEY (tenant, session_id, id)
);
CREATE INDEX tasks_by_parent ON task_rows (parent_id);
CREATE INDEX tasks_by_status ON task_rows (session_id, status);
CREATE VIEW tasks AS SELECT id, session_id, parent_id, goal, status, result, depth, created_at, completed_at, valid_from, valid_to FROM task_rows;

-- version 0005
CREATE TABLE settings (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- version 0006
ALTER TABLE task_rows ADD COLUMN criteria TEXT DEFAULT '' NOT NULL;
ALTER TABLE task_rows ADD COLUMN noted TEXT DEFAULT '' NOT NULL;
ALTER TABLE task_rows ADD COLUMN written BIGINT DEFAULT '0' NOT NULL;
CREATE INDEX tasks_by_writing ON task_rows (written);
DELETE FROM task_rows;

-- version 0007
ALTER TABLE conversations ADD COLUMN written BIGINT DEFAULT '0' NOT NULL;

-- version 0008
CREATE TABLE usage_days (
    tenant TEXT NOT NULL,
    day BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE NOT NULL,
    cost_untouched DOUBLE NOT NULL,
    PRIMARY KEY (tenant, day)
);

-- version 0009
CREATE TABLE reservations (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    tokens BIGINT NOT NULL,
    usd DOUBLE NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- version 0010
CREATE TABLE frame_vectors (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    frame TEXT NOT NULL,
    model TEXT NOT NULL,
    made_of BLOB NOT NULL,
    numbers BLOB NOT NULL,
    written BIGINT NOT NULL,
    PRIMARY KEY (tenant, conversation, frame)
);
CREATE INDEX vectors_by_writing ON frame_vectors (written);
