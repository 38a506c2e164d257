-- What operators look at, and who they are.

CREATE TABLE stats_minute (
    model_id TEXT NOT NULL,
    minute BIGINT NOT NULL,
    counts TEXT NOT NULL DEFAULT '{}',
    latency TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (model_id, minute)
);
CREATE INDEX stats_minute_age ON stats_minute (minute);

CREATE TABLE breaker_events (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL DEFAULT 0,
    node_id TEXT NOT NULL DEFAULT '',
    model_id TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    from_state TEXT NOT NULL DEFAULT '',
    to_state TEXT NOT NULL DEFAULT '',
    cause TEXT NOT NULL DEFAULT '',
    detail TEXT,
    generation BIGINT NOT NULL DEFAULT 0,
    by_operator TEXT,
    task_id TEXT,
    seq BIGINT
);
CREATE INDEX breaker_events_model ON breaker_events (model_id, id);
CREATE INDEX breaker_events_task ON breaker_events (task_id) WHERE task_id IS NOT NULL;

CREATE TABLE audit_log (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL DEFAULT 0,
    actor TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL DEFAULT '',
    before TEXT,
    after TEXT
);

CREATE TABLE cost_daily (
    day TEXT NOT NULL,
    pool TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    provider TEXT NOT NULL DEFAULT '',
    caller TEXT NOT NULL DEFAULT '',
    tasks BIGINT NOT NULL DEFAULT 0,
    credits BIGINT NOT NULL DEFAULT 0,
    cost BIGINT NOT NULL DEFAULT 0,
    unknown_costs BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (day, pool, model, provider, caller)
);

CREATE TABLE cache_entries (
    key TEXT NOT NULL PRIMARY KEY,
    caller_id TEXT NOT NULL DEFAULT '',
    pool TEXT NOT NULL DEFAULT '',
    capability TEXT NOT NULL DEFAULT 'text',
    value TEXT NOT NULL DEFAULT '',
    embedding TEXT,
    expires_at BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX cache_entries_pool ON cache_entries (pool);
CREATE INDEX cache_entries_age ON cache_entries (expires_at);

CREATE TABLE admin_users (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    role TEXT NOT NULL DEFAULT 'viewer',
    token_hash TEXT UNIQUE,
    token_prefix TEXT,
    is_enabled BIGINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    operator TEXT,
    data TEXT NOT NULL DEFAULT '{}',
    expires_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX sessions_operator ON sessions (operator) WHERE operator IS NOT NULL;
CREATE INDEX sessions_age ON sessions (expires_at);
