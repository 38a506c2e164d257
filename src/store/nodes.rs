//! `nodes`: which processes live. Times are the database's own, so that no node's clock decides
//! whether another one is dead.

use sqlx::Row;

use super::{Store, StoreError};

impl Store {
    /// This node lives.
    pub(crate) async fn heartbeat(&self, node: &str, version: &str) -> Result<(), StoreError> {
        sqlx::query(self.sql(
            "INSERT INTO nodes (id, started_at, heartbeat_at, version) VALUES ($1, now_ms(), now_ms(), $2)
             ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, version = excluded.version",
        ))
        .bind(node)
        .bind(version)
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Nodes that have been silent for `silent_ms`.
    pub(crate) async fn silent_nodes(&self, silent_ms: i64) -> Result<Vec<String>, StoreError> {
        let rows =
            sqlx::query(self.sql("SELECT id FROM nodes WHERE heartbeat_at < now_ms() - $1 ORDER BY id"))
                .bind(silent_ms)
                .fetch_all(self.pool())
                .await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// Forgets a node, unless it has spoken again.
    pub(crate) async fn forget_node(&self, node: &str, silent_ms: i64) -> Result<(), StoreError> {
        sqlx::query(self.sql("DELETE FROM nodes WHERE id = $1 AND heartbeat_at < now_ms() - $2"))
            .bind(node)
            .bind(silent_ms)
            .execute(self.pool())
            .await?;
        Ok(())
    }
}

/// The tasks of a node, as its sweeper needs them.
impl Store {
    /// Tasks whose hold is held by `node`, created before `before` (milliseconds UTC).
    pub(crate) async fn held_tasks(
        &self,
        node: &str,
        before: i64,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(
            "SELECT id FROM ai_tasks WHERE hold_state = 'held' AND node_id = $1 AND created_at < $2 LIMIT $3",
        )
        .bind(node)
        .bind(before)
        .bind(limit)
        .fetch_all(self.pool())
        .await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// Which of `tasks` have an attempt that is out.
    pub(crate) async fn with_sent_attempt(&self, tasks: &[String]) -> Result<Vec<String>, StoreError> {
        let ids: Vec<_> = tasks.iter().map(|id| serde_json::json!({ "id": id })).collect();
        let rows = sqlx::query(self.sql(
            "SELECT DISTINCT a.task_id AS id FROM rows($1) AS j
             JOIN ai_model_attempts a ON a.task_id = j.value ->> 'id' WHERE a.status = 'sent'",
        ))
        .bind(serde_json::Value::Array(ids).to_string())
        .fetch_all(self.pool())
        .await?;
        rows.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// Frees idempotency keys that are older than they are kept, a thousand at a time.
    pub(crate) async fn tidy_tasks(&self) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE ai_tasks SET idempotency_key = NULL WHERE id IN (
                 SELECT id FROM ai_tasks WHERE idempotency_key IS NOT NULL AND created_at < $1 LIMIT 1000)",
        )
        .bind(Self::now_ms() - super::tasks::KEY_KEPT_MS)
        .execute(self.pool())
        .await?;
        Ok(())
    }
}

impl Store {
    /// Requests sent on a day (`2026-11-30`, in FOREBAY_TIME_ZONE), by account id.
    pub(crate) async fn account_requests(
        &self,
        day: &str,
    ) -> Result<std::collections::HashMap<String, i64>, StoreError> {
        let rows = sqlx::query("SELECT account_id, requests FROM account_daily WHERE day = $1")
            .bind(day)
            .fetch_all(self.pool())
            .await?;
        rows.iter().map(|row| Ok((row.try_get("account_id")?, row.try_get("requests")?))).collect()
    }
}
