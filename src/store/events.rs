//! `breaker_events`: every change of a breaker's state, written in small batches by a task of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::Row;
use tokio::sync::mpsc;

use super::{Store, StoreError, new_id};

/// One change of a breaker's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerEvent {
    /// Milliseconds UTC.
    pub at: i64,
    /// The model's id.
    pub model_id: String,
    /// The model's name as of then.
    pub model: String,
    /// The state before: `closed`, `open`, `half_open`.
    pub from: String,
    /// The state after.
    pub to: String,
    /// A word of the engine: `failures_in_a_row`, `forced`, …
    pub cause: String,
    /// More about the cause, for people.
    pub detail: Option<String>,
    /// The generation that began with it.
    pub generation: u64,
    /// The operator who caused it.
    pub by_operator: Option<String>,
    /// The attempt that caused it: task and seq.
    pub attempt: Option<(String, u32)>,
}

/// Events kept while the database is slow; more are dropped.
const KEPT: usize = 4_096;

/// Where events are handed in; never blocks.
#[derive(Clone, Debug)]
pub struct BreakerEvents {
    store: Store,
    events: mpsc::Sender<BreakerEvent>,
    /// By model id; so that the console's polls need no query.
    newest: Arc<Mutex<HashMap<String, BreakerEvent>>>,
}

impl BreakerEvents {
    /// Starts the task that writes them; it ends with the last handle.
    pub fn start(store: Store, node: &str) -> Self {
        let (events, mut inbox) = mpsc::channel(KEPT);
        let node = node.to_owned();
        let writer = store.clone();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while inbox.recv_many(&mut waiting, 256).await > 0 {
                if let Err(error) = writer.add_breaker_events(&node, &waiting).await {
                    tracing::warn!(%error, events = waiting.len(), "breaker events were lost");
                }
                waiting.clear();
            }
        });
        Self { store, events, newest: Arc::default() }
    }

    /// The newest event of a model since this process started.
    pub fn newest(&self, model_id: &str) -> Option<BreakerEvent> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).get(model_id).cloned()
    }

    /// Events at or after `since` (milliseconds UTC), newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn since(&self, since: i64, limit: u32) -> Result<Vec<BreakerEvent>, StoreError> {
        let which = "at >= $1 ORDER BY id DESC LIMIT $2";
        self.store.read_events(which, since, None, limit.into()).await
    }

    /// What a task's attempts did to breakers, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn of_task(&self, task_id: &str) -> Result<Vec<BreakerEvent>, StoreError> {
        let which = "task_id = $3 AND at >= $1 ORDER BY id LIMIT $2";
        self.store.read_events(which, 0, Some(task_id), 100).await
    }

    /// Hands an event in. While thousands wait for a database that is away it is dropped.
    pub fn record(&self, event: BreakerEvent) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.insert(event.model_id.clone(), event.clone());
        drop(newest);
        if self.events.try_send(event).is_err() {
            tracing::warn!("a breaker event was dropped: the database does not keep up");
        }
    }
}

impl Store {
    async fn add_breaker_events(&self, node: &str, events: &[BreakerEvent]) -> Result<(), StoreError> {
        let rows: Vec<_> = events
            .iter()
            .map(|event| {
                serde_json::json!({
                    "id": new_id(), "at": event.at, "node": node, "model_id": event.model_id,
                    "model": event.model, "from": event.from, "to": event.to, "cause": event.cause,
                    "detail": event.detail, "generation": event.generation, "by": event.by_operator,
                    "task": event.attempt.as_ref().map(|(task, _)| task),
                    "seq": event.attempt.as_ref().map(|(_, seq)| seq),
                })
            })
            .collect();
        sqlx::query(self.sql(
            "INSERT INTO breaker_events (id, at, node_id, model_id, model, from_state, to_state, cause, detail,
                 generation, by_operator, task_id, seq)
             SELECT j.value ->> 'id', CAST(j.value ->> 'at' AS BIGINT), j.value ->> 'node',
                 j.value ->> 'model_id', j.value ->> 'model', j.value ->> 'from', j.value ->> 'to',
                 j.value ->> 'cause', j.value ->> 'detail', CAST(j.value ->> 'generation' AS BIGINT),
                 j.value ->> 'by', j.value ->> 'task', CAST(j.value ->> 'seq' AS BIGINT)
             FROM rows($1) AS j",
        ))
        .bind(serde_json::Value::Array(rows).to_string())
        .execute(self.pool())
        .await?;
        Ok(())
    }

    async fn read_events(
        &self,
        which: &str,
        since: i64,
        task_id: Option<&str>,
        limit: i64,
    ) -> Result<Vec<BreakerEvent>, StoreError> {
        let sql = format!(
            "SELECT at, model_id, model, from_state, to_state, cause, detail, generation, by_operator, task_id,
                 seq FROM breaker_events WHERE {which}"
        );
        let mut query = sqlx::query(self.sql(&sql)).bind(since).bind(limit);
        if let Some(task_id) = task_id {
            query = query.bind(task_id);
        }
        let rows = query.fetch_all(self.pool()).await?;
        rows.iter()
            .map(|row| {
                let task: Option<String> = row.try_get("task_id")?;
                let seq: Option<i64> = row.try_get("seq")?;
                Ok(BreakerEvent {
                    at: row.try_get("at")?,
                    model_id: row.try_get("model_id")?,
                    model: row.try_get("model")?,
                    from: row.try_get("from_state")?,
                    to: row.try_get("to_state")?,
                    cause: row.try_get("cause")?,
                    detail: row.try_get("detail")?,
                    generation: u64::try_from(row.try_get::<i64, _>("generation")?).unwrap_or_default(),
                    by_operator: row.try_get("by_operator")?,
                    attempt: task
                        .map(|task| (task, seq.and_then(|seq| u32::try_from(seq).ok()).unwrap_or(1))),
                })
            })
            .collect()
    }
}
