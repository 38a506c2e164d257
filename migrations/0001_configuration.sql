-- What operators configure. Any column that hand-written SQL may leave out has a default.

CREATE TABLE ai_model_groups (
    id TEXT NOT NULL PRIMARY KEY,
    group_key TEXT NOT NULL UNIQUE,
    public_alias TEXT,
    name TEXT NOT NULL DEFAULT '',
    capability TEXT NOT NULL DEFAULT 'text',
    strategy TEXT NOT NULL DEFAULT 'weighted_random',
    dynamic_weights BIGINT NOT NULL DEFAULT 0,
    latency_target_ms BIGINT,
    breaker_policy TEXT NOT NULL DEFAULT 'consecutive',
    circuit_failure_threshold BIGINT NOT NULL DEFAULT 5,
    circuit_recovery_seconds BIGINT NOT NULL DEFAULT 60,
    recovery_backoff BIGINT NOT NULL DEFAULT 0,
    error_rate_threshold DOUBLE PRECISION NOT NULL DEFAULT 0.5,
    error_rate_window_seconds BIGINT NOT NULL DEFAULT 60,
    error_rate_min_calls BIGINT NOT NULL DEFAULT 20,
    error_rate_open_seconds BIGINT NOT NULL DEFAULT 300,
    half_open_probes BIGINT NOT NULL DEFAULT 10,
    half_open_success_rate DOUBLE PRECISION NOT NULL DEFAULT 0.9,
    switch_first BIGINT NOT NULL DEFAULT 1,
    retry_unknown BIGINT NOT NULL DEFAULT 0,
    queue_timeout_ms BIGINT NOT NULL DEFAULT 2000,
    queue_max BIGINT,
    first_packet_timeout_ms BIGINT NOT NULL DEFAULT 60000,
    idle_timeout_ms BIGINT NOT NULL DEFAULT 60000,
    content_timeout_ms BIGINT NOT NULL DEFAULT 180000,
    min_content_chars BIGINT NOT NULL DEFAULT 1,
    fallback_template TEXT,
    cache TEXT NOT NULL DEFAULT 'off',
    cache_embedding_pool TEXT,
    cache_threshold DOUBLE PRECISION NOT NULL DEFAULT 0.95,
    cache_hit_price TEXT NOT NULL DEFAULT '0.00',
    store_content BIGINT NOT NULL DEFAULT 0,
    rehost_results BIGINT NOT NULL DEFAULT 1,
    deep_thinking_model TEXT,
    region TEXT,
    price TEXT NOT NULL DEFAULT '{}',
    budget_daily TEXT,
    is_active BIGINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE ai_providers (
    id TEXT NOT NULL PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL DEFAULT '',
    protocol TEXT NOT NULL DEFAULT 'openai',
    base_url TEXT NOT NULL DEFAULT '',
    proxy_url TEXT,
    tier TEXT NOT NULL DEFAULT 'other',
    region TEXT,
    currency_rate TEXT NOT NULL DEFAULT '1.00',
    allow_private_network BIGINT NOT NULL DEFAULT 0,
    is_enabled BIGINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE ai_models (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    public_alias TEXT,
    provider TEXT NOT NULL DEFAULT '',
    base_url TEXT,
    upstream_model TEXT NOT NULL DEFAULT '',
    capability TEXT NOT NULL DEFAULT 'text',
    group_id TEXT REFERENCES ai_model_groups (id) ON DELETE SET NULL,
    weight BIGINT NOT NULL DEFAULT 1,
    priority BIGINT NOT NULL DEFAULT 0,
    max_concurrency BIGINT DEFAULT 10,
    is_active BIGINT NOT NULL DEFAULT 1,
    features TEXT NOT NULL DEFAULT '{}',
    metadata TEXT NOT NULL DEFAULT '{}',
    prices TEXT NOT NULL DEFAULT '{}',
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX ai_models_group ON ai_models (group_id);

CREATE TABLE ai_model_api_accounts (
    id TEXT NOT NULL PRIMARY KEY,
    account_key TEXT NOT NULL DEFAULT '',
    key_version BIGINT NOT NULL DEFAULT 0,
    key_revision BIGINT NOT NULL DEFAULT 1,
    label TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL DEFAULT '',
    max_rps DOUBLE PRECISION DEFAULT 50,
    max_tpm BIGINT,
    max_concurrency BIGINT,
    daily_limit BIGINT,
    headroom DOUBLE PRECISION NOT NULL DEFAULT 0,
    region TEXT,
    is_enabled BIGINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE account_daily (
    account_id TEXT NOT NULL,
    day TEXT NOT NULL,
    requests BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, day)
);

CREATE TABLE ai_model_account_bindings (
    model_id TEXT NOT NULL REFERENCES ai_models (id) ON DELETE CASCADE,
    account_id TEXT NOT NULL REFERENCES ai_model_api_accounts (id) ON DELETE CASCADE,
    priority BIGINT NOT NULL DEFAULT 0,
    UNIQUE (model_id, account_id)
);
CREATE INDEX ai_model_account_bindings_account ON ai_model_account_bindings (account_id);

CREATE TABLE ai_model_api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    model_id TEXT NOT NULL REFERENCES ai_models (id) ON DELETE CASCADE,
    api_key TEXT NOT NULL DEFAULT '',
    key_version BIGINT NOT NULL DEFAULT 0,
    position BIGINT NOT NULL DEFAULT 0,
    is_enabled BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX ai_model_api_keys_model ON ai_model_api_keys (model_id, position);

CREATE TABLE callers (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    region TEXT,
    is_enabled BIGINT NOT NULL DEFAULT 1,
    webhook_secret TEXT,
    created_at BIGINT NOT NULL DEFAULT 0,
    updated_at BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE caller_tokens (
    hash TEXT NOT NULL PRIMARY KEY,
    caller_id TEXT NOT NULL REFERENCES callers (id) ON DELETE CASCADE,
    prefix TEXT NOT NULL DEFAULT '',
    expires_at BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX caller_tokens_caller ON caller_tokens (caller_id);

CREATE TABLE caller_pools (
    caller_id TEXT NOT NULL REFERENCES callers (id) ON DELETE CASCADE,
    group_key TEXT NOT NULL,
    UNIQUE (caller_id, group_key)
);

CREATE TABLE member_plans (
    caller_id TEXT NOT NULL PRIMARY KEY REFERENCES callers (id) ON DELETE CASCADE,
    concurrent_tasks BIGINT NOT NULL DEFAULT 10,
    monthly_credits BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE settings (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL DEFAULT 'null',
    updated_at BIGINT NOT NULL DEFAULT 0
);

-- One row. Triggers on the tables above count every change of configuration here.
CREATE TABLE config_version (
    id BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL DEFAULT 1
);
INSERT INTO config_version (id, version) VALUES (1, 1);
