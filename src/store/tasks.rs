//! `ai_tasks` and `ai_model_attempts`, as they are read. The writing is in [`super::batch`].

use std::collections::HashMap;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::{Store, StoreError, flag};

/// How long an idempotency key is kept.
pub(crate) const KEY_KEPT_MS: i64 = 24 * 3_600_000;

/// A task, with money in micro-units and times in milliseconds UTC (0 = not yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// UUIDv7.
    pub id: String,
    /// Whose it is.
    pub caller_id: String,
    /// That caller's name; its id where the caller is gone.
    pub caller: String,
    /// The caller's key for it.
    pub idempotency_key: Option<String>,
    /// Kept from old callers.
    pub task_type: Option<String>,
    /// The pool's key, or the model's name.
    pub asked: String,
    /// The name that the caller used.
    pub alias: String,
    /// The pool that serves it.
    pub pool: Option<String>,
    /// What is generated.
    pub capability: String,
    /// `generate`, `edit`, …
    pub operation: String,
    /// `queued`, `running`, `succeeded`, `failed`, `outcome_unknown`, `dead_lettered`, `cancelled`.
    pub status: String,
    /// A streamed answer.
    pub stream: bool,
    /// JSON; empty in lists.
    pub request_summary: Option<String>,
    /// JSON; empty in lists.
    pub metadata: Option<String>,
    /// The answer as JSON; empty in lists.
    pub output: Option<String>,
    /// JSON.
    pub usage: Option<String>,
    /// JSON: `{"code", "message", …}`.
    pub error: Option<String>,
    /// `none`, `held`, `settled`, `released`.
    pub hold_state: String,
    /// Credits set aside.
    pub credits_held: i64,
    /// Credits taken; `None` until the end.
    pub credits_charged: Option<i64>,
    /// The model that served it.
    pub final_model: Option<String>,
    /// When it came.
    pub created_at: i64,
    /// When its first attempt began.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: i64,
    /// Real upstream requests made for it. In lists and for a single task.
    pub attempts: u32,
    /// The class of its last failed attempt. In lists and for a single task.
    pub error_class: Option<String>,
}

/// An attempt, with names as they were then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// From 1.
    pub seq: i64,
    /// `initial`, `retry`, `fallback`.
    pub kind: String,
    /// Why this member and account.
    pub reason: String,
    /// The provider's key.
    pub provider: String,
    /// The model's id.
    pub model_id: String,
    /// The model's name.
    pub model: String,
    /// The account's label.
    pub account: Option<String>,
    /// The node that sent it.
    pub node_id: String,
    /// `sent`, `succeeded`, `failed`, `outcome_unknown`, `cancelled`.
    pub status: String,
    /// The upstream's status.
    pub http_status: Option<i64>,
    /// The class of its failure.
    pub error_class: Option<String>,
    /// Redacted.
    pub error_message: Option<String>,
    /// Milliseconds UTC.
    pub started_at: i64,
    /// How long the task waited before it.
    pub waited_ms: i64,
    /// From its start to the first content.
    pub first_content_ms: Option<i64>,
    /// From its start to its end.
    pub duration_ms: Option<i64>,
    /// The provider's id of it.
    pub provider_task_id: Option<String>,
    /// JSON.
    pub usage: Option<String>,
    /// Micro-units; `None` = unknown.
    pub cost: Option<i64>,
    /// The breaker's generation that admitted it.
    pub breaker_generation: i64,
    /// JSON.
    pub request_summary: Option<String>,
    /// JSON; `outcome_unknown` is in it.
    pub response_summary: Option<String>,
}

impl AttemptRow {
    /// The upstream may have done the work, and billed it.
    pub fn outcome_unknown(&self) -> bool {
        self.response_summary.as_deref().is_some_and(|summary| summary.contains(r#""outcome_unknown":true"#))
    }
}

/// The task that an idempotency key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedTask {
    /// The hash of the request that came with the key.
    pub request_hash: String,
    /// The task.
    pub task: TaskRow,
}

/// Which tasks to list; what is absent does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Exactly this status.
    pub status: Option<String>,
    /// Exactly this capability.
    pub capability: Option<String>,
    /// Served by this pool.
    pub pool: Option<String>,
    /// This model was asked for, or tried by any attempt.
    pub model: Option<String>,
    /// This caller's, by id.
    pub caller_id: Option<String>,
    /// Any attempt failed with this class.
    pub error_class: Option<String>,
    /// Created at or after; milliseconds UTC.
    pub from: Option<i64>,
    /// Created before; milliseconds UTC.
    pub to: Option<i64>,
    /// Part of the task's id.
    pub q: Option<String>,
    /// With the answers, as far as they are of a modest size.
    pub outputs: bool,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPage {
    /// Newest first.
    pub tasks: Vec<TaskRow>,
    /// Where the next page begins; `None` on the last.
    pub next_cursor: Option<String>,
}

/// How far the clock that makes ids and the one that says when a task came may be apart.
const CLOCKS_APART_MS: i64 = 10_000;

/// Longer answers are not in a list, in bytes; each is with its task.
const LISTED_OUTPUT: usize = 65_536;

/// The statuses that the index of tasks that ended badly holds.
const ENDED_BADLY: [&str; 5] = ["queued", "failed", "outcome_unknown", "dead_lettered", "cancelled"];

const TASK_COLUMNS: &str = "t.id, t.caller_id, COALESCE(c.name, t.caller_id) AS caller, t.idempotency_key,
    t.task_type, t.asked, t.alias, t.pool, t.capability, t.operation, t.status, t.stream, t.usage, t.error,
    t.hold_state, t.credits_held, t.credits_charged, t.final_model, t.created_at, t.started_at, t.finished_at";

impl Store {
    pub(crate) async fn task(
        &self,
        id: &str,
        caller_id: Option<&str>,
    ) -> Result<Option<TaskRow>, StoreError> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "SELECT {TASK_COLUMNS}, t.request_summary, t.metadata, t.result, t.request_hash
             FROM ai_tasks t LEFT JOIN callers c ON c.id = t.caller_id
             WHERE t.id = $1 AND ($2 IS NULL OR t.caller_id = $2)"
        )))
        .bind(id)
        .bind(caller_id)
        .fetch_optional(self.pool())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let mut tasks = vec![whole_task(&row)?];
        self.count_attempts(&mut tasks).await?;
        Ok(tasks.pop())
    }

    pub(crate) async fn keyed_task(
        &self,
        caller_id: &str,
        key: &str,
    ) -> Result<Option<KeyedTask>, StoreError> {
        let row = sqlx::query(AssertSqlSafe(format!(
            "SELECT {TASK_COLUMNS}, t.request_summary, t.metadata, t.result, t.request_hash
             FROM ai_tasks t LEFT JOIN callers c ON c.id = t.caller_id
             WHERE t.caller_id = $1 AND t.idempotency_key = $2 AND t.created_at > $3"
        )))
        .bind(caller_id)
        .bind(key)
        .bind(Self::now_ms() - KEY_KEPT_MS)
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| {
            let request_hash = row.try_get::<Option<String>, _>("request_hash")?.unwrap_or_default();
            Ok(KeyedTask { request_hash, task: whole_task(&row)? })
        })
        .transpose()
    }

    pub(crate) async fn attempts(&self, task_id: &str) -> Result<Vec<AttemptRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT seq, kind, reason, provider, model_id, model, account, node_id, status, http_status,
                 error_class, error_message, started_at, waited_ms, first_content_ms, duration_ms,
                 provider_task_id, usage, cost, breaker_generation, request_summary, response_summary
             FROM ai_model_attempts WHERE task_id = $1 ORDER BY seq",
        )
        .bind(task_id)
        .fetch_all(self.pool())
        .await?;
        rows.iter().map(|row| Ok(attempt(row)?)).collect()
    }

    /// At most `limit` tasks, newest first. The ids are found by the index that fits the filter best;
    /// the rows and their attempts are then read by id.
    pub async fn tasks(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<TaskPage, StoreError> {
        if cursor.is_some_and(|cursor| uuid::Uuid::parse_str(cursor).is_err()) {
            return Err(StoreError::Cursor);
        }
        let limit = limit.clamp(1, 500) as usize;
        let mut ids = Vec::new();
        for search in Search::all(filter) {
            let sql = search.sql(filter);
            let rows = sqlx::query(AssertSqlSafe(sql))
                .bind(cursor)
                .bind(filter.status.as_deref())
                .bind(filter.capability.as_deref())
                .bind(filter.pool.as_deref())
                .bind(filter.model.as_deref())
                .bind(filter.caller_id.as_deref())
                .bind(filter.error_class.as_deref())
                .bind(filter.from)
                .bind(filter.to)
                .bind(filter.q.as_deref().map(|q| format!("%{}%", q.replace(['%', '_'], ""))))
                .bind(limit as i64 + 1)
                .fetch_all(self.pool())
                .await?;
            for row in &rows {
                ids.push(row.try_get::<String, _>("id")?);
            }
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.dedup();
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next_cursor = ids.last().filter(|_| more).cloned();
        let mut tasks = self.tasks_by_id(&ids).await?;
        if filter.outputs {
            self.add_outputs(&ids, &mut tasks).await?;
        }
        Ok(TaskPage { tasks, next_cursor })
    }

    async fn tasks_by_id(&self, ids: &[String]) -> Result<Vec<TaskRow>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(self.sql(&format!(
            "SELECT {TASK_COLUMNS} FROM rows($1) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id'
             LEFT JOIN callers c ON c.id = t.caller_id ORDER BY t.id DESC"
        )))
        .bind(id_rows(ids))
        .fetch_all(self.pool())
        .await?;
        let mut tasks = rows.iter().map(task).collect::<sqlx::Result<Vec<_>>>()?;
        self.count_attempts(&mut tasks).await?;
        Ok(tasks)
    }

    async fn add_outputs(&self, ids: &[String], tasks: &mut [TaskRow]) -> Result<(), StoreError> {
        let rows = sqlx::query(self.sql(&format!(
            "SELECT t.id, t.result FROM rows($1) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id'
             WHERE t.result IS NOT NULL AND LENGTH(t.result) <= {LISTED_OUTPUT}"
        )))
        .bind(id_rows(ids))
        .fetch_all(self.pool())
        .await?;
        let mut outputs: HashMap<String, String> = HashMap::new();
        for row in &rows {
            outputs.insert(row.try_get("id")?, row.try_get("result")?);
        }
        for task in tasks {
            task.output = outputs.remove(&task.id);
        }
        Ok(())
    }

    async fn count_attempts(&self, tasks: &mut [TaskRow]) -> Result<(), StoreError> {
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        let rows = sqlx::query(self.sql(
            "SELECT a.task_id, a.error_class FROM rows($1) AS j
             JOIN ai_model_attempts a ON a.task_id = j.value ->> 'id' ORDER BY a.task_id, a.seq",
        ))
        .bind(id_rows(&ids))
        .fetch_all(self.pool())
        .await?;
        let mut found: HashMap<String, (u32, Option<String>)> = HashMap::new();
        for row in &rows {
            let (count, class) = found.entry(row.try_get("task_id")?).or_default();
            *count += 1;
            *class = row.try_get::<Option<String>, _>("error_class")?.or(class.take());
        }
        for task in tasks {
            if let Some((count, class)) = found.remove(&task.id) {
                (task.attempts, task.error_class) = (count, class);
            }
        }
        Ok(())
    }
}

/// Where a list begins to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// In the tasks, by id, caller, pool or status.
    Tasks,
    /// In the failed attempts of one class.
    Failures,
    /// In the attempts of one model.
    AttemptsOfModel,
    /// In the tasks that asked for one model.
    AskedForModel,
}

impl Search {
    /// The searches whose results together are the list.
    fn all(filter: &TaskFilter) -> &'static [Self] {
        match (&filter.error_class, &filter.model) {
            (Some(_), _) => &[Self::Failures],
            (None, Some(_)) => &[Self::AttemptsOfModel, Self::AskedForModel],
            (None, None) => &[Self::Tasks],
        }
    }

    /// $1 cursor, $2 status, $3 capability, $4 pool, $5 model, $6 caller, $7 class, $8 from, $9 to,
    /// $10 pattern, $11 limit. Conditions are written out only where they restrict, so that each
    /// text has the index it was made for; those that do not still name their placeholder, since
    /// PostgreSQL wants to know the type of every one.
    fn sql(self, filter: &TaskFilter) -> String {
        let (source, id) = match self {
            // They are few: all of them, rather than a walk through those that have ended.
            Self::Tasks if filter.status.as_deref() == Some("running") => (
                "(SELECT h.id, h.status, h.capability, h.pool, h.asked, h.caller_id, h.created_at
                  FROM ai_tasks h WHERE h.hold_state = 'held' LIMIT 1000000) t",
                "t.id",
            ),
            Self::Tasks => ("ai_tasks t", "t.id"),
            Self::AskedForModel => ("ai_tasks t", "t.id"),
            Self::Failures | Self::AttemptsOfModel => {
                ("ai_model_attempts a CROSS JOIN ai_tasks t", "a.task_id")
            }
        };
        let mut sql = format!("SELECT {id} AS id FROM {source} WHERE ");
        let mut condition = |given: bool, text: &str, placeholder: &str, kind: &str| {
            if given {
                sql.push_str(text);
            } else {
                sql.push_str(&format!("CAST({placeholder} AS {kind}) IS NULL"));
            }
            sql.push_str(" AND ");
        };
        let status = filter.status.as_deref();
        let badly = "t.status = $2 AND t.status <> 'succeeded' AND t.status <> 'running'";
        let status_text = match status {
            Some(status) if ENDED_BADLY.contains(&status) => badly,
            _ => "t.status = $2",
        };
        condition(status.is_some(), status_text, "$2", "TEXT");
        let capability = match filter.capability.as_deref() {
            Some("text") => "t.capability = $3",
            _ => "t.capability = $3 AND t.capability <> 'text'",
        };
        condition(filter.capability.is_some(), capability, "$3", "TEXT");
        condition(filter.pool.is_some(), "t.pool = $4", "$4", "TEXT");
        let model = match self {
            Self::AttemptsOfModel => "a.model = $5",
            Self::AskedForModel => "t.asked = $5 AND t.pool IS NULL",
            _ => {
                "(t.asked = $5 AND t.pool IS NULL
                  OR t.id IN (SELECT m.task_id FROM ai_model_attempts m WHERE m.task_id = t.id AND m.model = $5))"
            }
        };
        condition(filter.model.is_some(), model, "$5", "TEXT");
        condition(filter.caller_id.is_some(), "t.caller_id = $6", "$6", "TEXT");
        condition(filter.error_class.is_some(), "a.error_class = $7", "$7", "TEXT");
        condition(filter.from.is_some(), "t.created_at >= $8", "$8", "BIGINT");
        condition(filter.to.is_some(), "t.created_at < $9", "$9", "BIGINT");
        condition(filter.q.is_some(), "t.id LIKE $10", "$10", "TEXT");
        // Ids begin with their time: this bounds the walk, the conditions above are exact.
        if let Some(from) = filter.from {
            sql.push_str(&format!("{id} >= '{}' AND ", id_at(from - CLOCKS_APART_MS)));
        }
        if let Some(to) = filter.to {
            sql.push_str(&format!("{id} < '{}' AND ", id_at(to + CLOCKS_APART_MS)));
        }
        if matches!(self, Self::Failures | Self::AttemptsOfModel) {
            sql.push_str("t.id = a.task_id AND ");
        }
        sql.push_str(&format!("($1 IS NULL OR {id} < $1) GROUP BY {id} ORDER BY {id} DESC LIMIT $11"));
        sql
    }
}

/// The lowest UUIDv7 of a millisecond.
fn id_at(ms: i64) -> String {
    let ms = ms.max(0) & 0xffff_ffff_ffff;
    format!("{:08x}-{:04x}", ms >> 16, ms & 0xffff)
}

fn id_rows<S: AsRef<str>>(ids: &[S]) -> String {
    let rows: Vec<_> = ids.iter().map(|id| serde_json::json!({ "id": id.as_ref() })).collect();
    serde_json::Value::Array(rows).to_string()
}

fn whole_task(row: &AnyRow) -> sqlx::Result<TaskRow> {
    let mut task = task(row)?;
    task.request_summary = row.try_get("request_summary")?;
    task.metadata = row.try_get("metadata")?;
    task.output = row.try_get("result")?;
    Ok(task)
}

fn task(row: &AnyRow) -> sqlx::Result<TaskRow> {
    Ok(TaskRow {
        id: row.try_get("id")?,
        caller_id: row.try_get("caller_id")?,
        caller: row.try_get("caller")?,
        idempotency_key: row.try_get("idempotency_key")?,
        task_type: row.try_get("task_type")?,
        asked: row.try_get("asked")?,
        alias: row.try_get("alias")?,
        pool: row.try_get("pool")?,
        capability: row.try_get("capability")?,
        operation: row.try_get("operation")?,
        status: row.try_get("status")?,
        stream: flag(row, "stream")?,
        request_summary: None,
        metadata: None,
        output: None,
        usage: row.try_get("usage")?,
        error: row.try_get("error")?,
        hold_state: row.try_get("hold_state")?,
        credits_held: row.try_get("credits_held")?,
        credits_charged: row.try_get("credits_charged")?,
        final_model: row.try_get("final_model")?,
        created_at: row.try_get("created_at")?,
        started_at: row.try_get("started_at")?,
        finished_at: row.try_get("finished_at")?,
        attempts: 0,
        error_class: None,
    })
}

fn attempt(row: &AnyRow) -> sqlx::Result<AttemptRow> {
    Ok(AttemptRow {
        seq: row.try_get("seq")?,
        kind: row.try_get("kind")?,
        reason: row.try_get("reason")?,
        provider: row.try_get("provider")?,
        model_id: row.try_get("model_id")?,
        model: row.try_get("model")?,
        account: row.try_get("account")?,
        node_id: row.try_get("node_id")?,
        status: row.try_get("status")?,
        http_status: row.try_get("http_status")?,
        error_class: row.try_get("error_class")?,
        error_message: row.try_get("error_message")?,
        started_at: row.try_get("started_at")?,
        waited_ms: row.try_get("waited_ms")?,
        first_content_ms: row.try_get("first_content_ms")?,
        duration_ms: row.try_get("duration_ms")?,
        provider_task_id: row.try_get("provider_task_id")?,
        usage: row.try_get("usage")?,
        cost: row.try_get("cost")?,
        breaker_generation: row.try_get("breaker_generation")?,
        request_summary: row.try_get("request_summary")?,
        response_summary: row.try_get("response_summary")?,
    })
}
