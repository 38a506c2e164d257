-- The hot tables. Every index here costs every request: task ids are UUIDv7 and so sort by time,
-- which saves the indexes on times; what is rare is indexed where it occurs.

CREATE TABLE ai_tasks (
    id TEXT NOT NULL PRIMARY KEY,
    caller_id TEXT NOT NULL DEFAULT '',
    idempotency_key TEXT,
    request_hash TEXT,
    task_type TEXT,
    asked TEXT NOT NULL DEFAULT '',
    alias TEXT NOT NULL DEFAULT '',
    pool TEXT,
    capability TEXT NOT NULL DEFAULT 'text',
    operation TEXT NOT NULL DEFAULT 'generate',
    status TEXT NOT NULL DEFAULT 'running',
    stream BIGINT NOT NULL DEFAULT 0,
    request_summary TEXT,
    metadata TEXT,
    result TEXT,
    usage TEXT,
    error TEXT,
    round BIGINT NOT NULL DEFAULT 0,
    -- none, held, settled, released
    hold_state TEXT NOT NULL DEFAULT 'none',
    credits_held BIGINT NOT NULL DEFAULT 0,
    credits_charged BIGINT,
    prices TEXT,
    platform_cost BIGINT,
    final_model TEXT,
    node_id TEXT,
    remote_task_id TEXT,
    next_run_at BIGINT NOT NULL DEFAULT 0,
    claimed_by TEXT,
    lease_until BIGINT NOT NULL DEFAULT 0,
    webhook TEXT,
    created_at BIGINT NOT NULL DEFAULT 0,
    started_at BIGINT NOT NULL DEFAULT 0,
    finished_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX ai_tasks_caller ON ai_tasks (caller_id, id);
CREATE INDEX ai_tasks_pool ON ai_tasks (pool, id) WHERE pool IS NOT NULL;
CREATE INDEX ai_tasks_asked_model ON ai_tasks (asked, id) WHERE pool IS NULL;
CREATE INDEX ai_tasks_ended_badly ON ai_tasks (status, id) WHERE status <> 'succeeded' AND status <> 'running';
CREATE INDEX ai_tasks_capability ON ai_tasks (capability, id) WHERE capability <> 'text';
CREATE INDEX ai_tasks_held ON ai_tasks (node_id) WHERE hold_state = 'held';
CREATE UNIQUE INDEX ai_tasks_key ON ai_tasks (caller_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ai_tasks_key_age ON ai_tasks (created_at) WHERE idempotency_key IS NOT NULL;

CREATE TABLE ai_model_attempts (
    task_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL DEFAULT 'initial',
    reason TEXT NOT NULL DEFAULT '',
    provider TEXT NOT NULL DEFAULT '',
    model_id TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    account_id TEXT,
    account TEXT,
    node_id TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'sent',
    http_status BIGINT,
    error_class TEXT,
    error_message TEXT,
    started_at BIGINT NOT NULL DEFAULT 0,
    waited_ms BIGINT NOT NULL DEFAULT 0,
    first_content_ms BIGINT,
    duration_ms BIGINT,
    provider_task_id TEXT,
    usage TEXT,
    cost BIGINT,
    degraded BIGINT NOT NULL DEFAULT 0,
    breaker_generation BIGINT NOT NULL DEFAULT 0,
    request_summary TEXT,
    response_summary TEXT,
    PRIMARY KEY (task_id, seq)
);
CREATE INDEX ai_model_attempts_model ON ai_model_attempts (model, task_id);
CREATE INDEX ai_model_attempts_failed ON ai_model_attempts (error_class, task_id) WHERE error_class IS NOT NULL;

CREATE TABLE credit_accounts (
    caller_id TEXT NOT NULL PRIMARY KEY,
    balance BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE credit_ledger (
    caller_id TEXT NOT NULL,
    task_id TEXT,
    round BIGINT NOT NULL DEFAULT 0,
    -- grant, adjust (no task); reserve, settle, release (of a task)
    kind TEXT NOT NULL,
    amount BIGINT NOT NULL,
    balance_after BIGINT NOT NULL DEFAULT 0,
    reason TEXT,
    by_operator TEXT,
    created_at BIGINT NOT NULL DEFAULT 0,
    UNIQUE (task_id, round, kind)
);
CREATE INDEX credit_ledger_granted ON credit_ledger (caller_id, created_at) WHERE task_id IS NULL;

CREATE TABLE nodes (
    id TEXT NOT NULL PRIMARY KEY,
    started_at BIGINT NOT NULL DEFAULT 0,
    heartbeat_at BIGINT NOT NULL DEFAULT 0,
    version TEXT NOT NULL DEFAULT '',
    config_version BIGINT NOT NULL DEFAULT 0
);
