//! The ledger's batch: everything that waits, written in one transaction.
//!
//! Each kind of command is bound as one JSON array, a row an element. On SQLite the whole batch is
//! *one* multi-statement query (each query is a hop to SQLite's thread and back, and the hops are
//! what costs); on PostgreSQL the same statements run one by one.
//!
//! Every statement may run twice on the same rows without doing more than once: that is what makes a
//! batch safe to repeat after a deadlock, or when a connection was lost during its COMMIT. A
//! reservation is guarded by its ledger row, a settlement by `hold_state = 'held'`.

use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Executor, Row};

use super::Dialect;

/// The JSON arrays of a batch. An empty array is `[]`. What several statements need is in a narrow
/// array of its own, since every pass over an element parses all of it.
#[derive(Debug)]
pub(crate) struct BatchRows {
    /// Tasks to begin, each with the sum of its caller's holds so far in the batch.
    pub begins: String,
    /// Their ids, in the same order.
    pub begun: String,
    /// Attempts to begin, first ones included.
    pub attempts: String,
    /// How many they are.
    pub attempt_count: u64,
    /// Requests by account and day.
    pub requests: String,
    /// Attempts that ended.
    pub ended: String,
    /// Tasks to end; no task twice.
    pub ends: String,
    /// Their charges, in the same order.
    pub settled: String,
    /// Those of them that may leave an attempt `sent`.
    pub closed: String,
    /// Tasks that were refused.
    pub refused: String,
}

impl BatchRows {
    /// In the order of [`SOURCES`].
    fn arrays(&self) -> [&str; 9] {
        [
            &self.begins,
            &self.begun,
            &self.attempts,
            &self.requests,
            &self.ended,
            &self.ends,
            &self.settled,
            &self.closed,
            &self.refused,
        ]
    }
}

/// The names under which the statements know the arrays, in the order of their placeholders.
const SOURCES: [&str; 9] =
    ["begins", "begun", "attempts", "requests", "ended", "ends", "settled", "closed", "refused"];

/// PostgreSQL only (SQLite has one writer anyway): every balance that the batch touches is locked in
/// one order, so that two nodes never wait for each other.
const LOCK_BALANCES: &str = "
SELECT c.caller_id FROM credit_accounts c
WHERE c.caller_id IN (SELECT j.value ->> 'caller' FROM rows(begins) AS j)
   OR c.caller_id IN (SELECT t.caller_id FROM rows(settled) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id')
ORDER BY c.caller_id locked()";

/// A task begins if its caller's credits cover it after all before it in the batch, and if its
/// idempotency key is free.
const BEGIN_TASKS: &str = "
INSERT INTO ai_tasks (id, caller_id, idempotency_key, request_hash, task_type, asked, alias, pool, capability,
    operation, status, stream, request_summary, metadata, hold_state, credits_held, prices, node_id, created_at,
    started_at)
SELECT b.v ->> 'id', b.caller, b.v ->> 'key', b.v ->> 'hash', b.v ->> 'type', b.v ->> 'asked', b.v ->> 'alias',
    b.v ->> 'pool', b.v ->> 'capability', b.v ->> 'operation', 'running', CAST(b.v ->> 'stream' AS BIGINT),
    b.v ->> 'summary', b.v ->> 'metadata', 'held', b.hold, b.v ->> 'prices', b.v ->> 'node',
    CAST(b.v ->> 'at' AS BIGINT), CAST(b.v ->> 'started' AS BIGINT)
FROM (SELECT j.value AS v, j.value ->> 'caller' AS caller, CAST(j.value ->> 'hold' AS BIGINT) AS hold,
          CAST(j.value ->> 'running' AS BIGINT) AS running FROM rows(begins) AS j) AS b
LEFT JOIN credit_accounts c ON c.caller_id = b.caller
WHERE b.hold = 0 OR b.running <= COALESCE(c.balance, 0)
ON CONFLICT DO NOTHING";

/// Requests of each account's day. A batch that is repeated may count them twice, and a refused begin
/// is taken off in the next one: this is a limit's counter, no money.
const COUNT_REQUESTS: &str = "
INSERT INTO account_daily (account_id, day, requests)
SELECT j.value ->> 'account', j.value ->> 'day', CAST(j.value ->> 'count' AS BIGINT) FROM rows(requests) AS j
WHERE TRUE
ON CONFLICT (account_id, day) DO UPDATE SET requests = account_daily.requests + excluded.requests";

/// Only a task that is under way gets an attempt.
const BEGIN_ATTEMPTS: &str = "
INSERT INTO ai_model_attempts (task_id, seq, kind, reason, provider, model_id, model, account_id, account,
    node_id, started_at, waited_ms, breaker_generation)
SELECT t.id, CAST(j.value ->> 'seq' AS BIGINT), j.value ->> 'kind', j.value ->> 'reason',
    j.value ->> 'provider', j.value ->> 'model_id', j.value ->> 'model', j.value ->> 'account_id',
    j.value ->> 'account', j.value ->> 'node', CAST(j.value ->> 'at' AS BIGINT),
    CAST(j.value ->> 'waited' AS BIGINT), CAST(j.value ->> 'generation' AS BIGINT)
FROM rows(attempts) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id'
WHERE t.hold_state = 'held'
ON CONFLICT DO NOTHING";

const RESERVE: &str = "
UPDATE credit_accounts SET balance = credit_accounts.balance - d.held
FROM (SELECT t.caller_id, CAST(SUM(t.credits_held) AS BIGINT) AS held
      FROM rows(begun) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id'
      WHERE t.credits_held > 0 AND NOT EXISTS (
          SELECT 1 FROM credit_ledger l WHERE l.task_id = t.id AND l.round = t.round AND l.kind = 'reserve')
      GROUP BY t.caller_id) AS d
WHERE credit_accounts.caller_id = d.caller_id";

const RECORD_RESERVATIONS: &str = "
INSERT INTO credit_ledger (caller_id, task_id, round, kind, amount, balance_after, created_at)
SELECT r.caller_id, r.id, r.round, 'reserve', -r.credits_held,
    CAST(c.balance + SUM(r.credits_held) OVER (PARTITION BY r.caller_id)
        - SUM(r.credits_held) OVER (PARTITION BY r.caller_id ORDER BY r.n) AS BIGINT), r.created_at
FROM (SELECT j.key AS n, t.id, t.caller_id, t.round, t.credits_held, t.created_at
      FROM rows(begun) AS j JOIN ai_tasks t ON t.id = j.value ->> 'id' WHERE t.credits_held > 0) AS r
JOIN credit_accounts c ON c.caller_id = r.caller_id
WHERE TRUE
ON CONFLICT DO NOTHING";

/// `outcome_unknown` may be what a sweeper thought of a node that lived after all: the truth wins.
const END_ATTEMPTS: &str = "
UPDATE ai_model_attempts SET status = e.v ->> 'status', http_status = CAST(e.v ->> 'http' AS BIGINT),
    error_class = e.v ->> 'class', error_message = e.v ->> 'message',
    first_content_ms = CAST(e.v ->> 'first' AS BIGINT), duration_ms = CAST(e.v ->> 'took' AS BIGINT),
    provider_task_id = e.v ->> 'remote', usage = e.v ->> 'usage', cost = CAST(e.v ->> 'cost' AS BIGINT),
    response_summary = e.v ->> 'response'
FROM (SELECT j.value AS v, j.value ->> 'id' AS id, CAST(j.value ->> 'seq' AS BIGINT) AS seq
      FROM rows(ended) AS j) AS e
WHERE ai_model_attempts.task_id = e.id AND ai_model_attempts.seq = e.seq
  AND ai_model_attempts.status IN ('sent', 'outcome_unknown')";

/// What of each hold is given back, and which callers get it.
const RETURN_HOLDS: &str = "
UPDATE credit_accounts SET balance = credit_accounts.balance + d.back
FROM (SELECT t.caller_id, CAST(SUM(t.credits_held
          - CASE WHEN e.charge < t.credits_held THEN e.charge ELSE t.credits_held END) AS BIGINT) AS back
      FROM (SELECT j.value ->> 'id' AS id, CAST(j.value ->> 'charge' AS BIGINT) AS charge
            FROM rows(settled) AS j) AS e
      JOIN ai_tasks t ON t.id = e.id
      WHERE t.hold_state = 'held' AND t.credits_held > 0
      GROUP BY t.caller_id) AS d
WHERE credit_accounts.caller_id = d.caller_id";

const RECORD_SETTLEMENTS: &str = "
INSERT INTO credit_ledger (caller_id, task_id, round, kind, amount, balance_after, created_at)
SELECT s.caller_id, s.id, s.round, s.kind, s.back,
    CAST(c.balance - SUM(s.back) OVER (PARTITION BY s.caller_id)
        + SUM(s.back) OVER (PARTITION BY s.caller_id ORDER BY s.n) AS BIGINT), s.at
FROM (SELECT e.n, t.id, t.caller_id, t.round, e.kind, e.at, t.credits_held
          - CASE WHEN e.charge < t.credits_held THEN e.charge ELSE t.credits_held END AS back
      FROM (SELECT j.key AS n, j.value ->> 'id' AS id, CAST(j.value ->> 'charge' AS BIGINT) AS charge,
                j.value ->> 'kind' AS kind, CAST(j.value ->> 'at' AS BIGINT) AS at FROM rows(settled) AS j) AS e
      JOIN ai_tasks t ON t.id = e.id
      WHERE t.hold_state = 'held' AND t.credits_held > 0) AS s
JOIN credit_accounts c ON c.caller_id = s.caller_id
WHERE TRUE
ON CONFLICT DO NOTHING";

/// An end that finds its hold gone records the result and charges nothing.
const END_TASKS: &str = "
UPDATE ai_tasks SET status = e.v ->> 'status', result = e.v ->> 'output', usage = e.v ->> 'usage',
    error = e.v ->> 'error', final_model = e.v ->> 'model', finished_at = CAST(e.v ->> 'at' AS BIGINT),
    hold_state = CASE WHEN ai_tasks.hold_state <> 'held' THEN ai_tasks.hold_state
                      WHEN e.v ->> 'kind' = 'settle' THEN 'settled' ELSE 'released' END,
    credits_charged = CASE WHEN ai_tasks.hold_state <> 'held' THEN ai_tasks.credits_charged
                           WHEN e.charge < ai_tasks.credits_held THEN e.charge ELSE ai_tasks.credits_held END,
    idempotency_key = CASE WHEN e.v ->> 'frees' = '1' THEN NULL ELSE ai_tasks.idempotency_key END
FROM (SELECT j.value AS v, j.value ->> 'id' AS id, CAST(j.value ->> 'charge' AS BIGINT) AS charge
      FROM rows(ends) AS j) AS e
WHERE ai_tasks.id = e.id AND (ai_tasks.hold_state = 'held' OR ai_tasks.status = 'outcome_unknown')";

/// No attempt stays `sent` once its task has ended.
const CLOSE_ATTEMPTS: &str = "
UPDATE ai_model_attempts SET status = e.closes,
    response_summary = CASE WHEN e.closes = 'outcome_unknown' THEN '{\"outcome_unknown\":true}' END
FROM (SELECT j.value ->> 'id' AS id, j.value ->> 'closes' AS closes FROM rows(closed) AS j) AS e
WHERE ai_model_attempts.task_id = e.id AND ai_model_attempts.status = 'sent'";

const RECORD_REFUSED: &str = "
INSERT INTO ai_tasks (id, caller_id, task_type, asked, alias, pool, capability, operation, status, stream,
    request_summary, metadata, error, node_id, created_at, finished_at)
SELECT j.value ->> 'id', j.value ->> 'caller', j.value ->> 'type', j.value ->> 'asked', j.value ->> 'alias',
    j.value ->> 'pool', j.value ->> 'capability', j.value ->> 'operation', j.value ->> 'status',
    CAST(j.value ->> 'stream' AS BIGINT), j.value ->> 'summary', j.value ->> 'metadata', j.value ->> 'error',
    j.value ->> 'node', CAST(j.value ->> 'at' AS BIGINT), CAST(j.value ->> 'at' AS BIGINT)
FROM rows(refused) AS j WHERE TRUE
ON CONFLICT DO NOTHING";

/// Attempts that were asked for and are not there. Asked only when fewer were inserted than asked for:
/// after a refusal, or after a repetition, where none were inserted and all are there.
const MISSING: &str = "
SELECT j.value ->> 'id' AS id, CAST(j.value ->> 'seq' AS BIGINT) AS seq FROM rows(attempts) AS j
WHERE NOT EXISTS (SELECT 1 FROM ai_model_attempts a
    WHERE a.task_id = j.value ->> 'id' AND a.seq = CAST(j.value ->> 'seq' AS BIGINT))";

const STATEMENTS: [&str; 11] = [
    BEGIN_TASKS,
    COUNT_REQUESTS,
    BEGIN_ATTEMPTS,
    RESERVE,
    RECORD_RESERVATIONS,
    END_ATTEMPTS,
    RETURN_HOLDS,
    RECORD_SETTLEMENTS,
    END_TASKS,
    CLOSE_ATTEMPTS,
    RECORD_REFUSED,
];
/// The place of [`BEGIN_ATTEMPTS`] among them.
const ATTEMPTS_BEGUN: usize = 2;

/// The batch as one database runs it, spelt once.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// SQLite: all statements as one query, which begins and commits by itself.
    whole: Option<Arc<str>>,
    /// PostgreSQL: locks the balances.
    lock: Statement,
    /// PostgreSQL: one query each.
    statements: Vec<Statement>,
    missing: Statement,
}

#[derive(Clone, Debug)]
struct Statement {
    sql: Arc<str>,
    /// Which arrays it reads, in the order of its placeholders.
    sources: Vec<usize>,
}

impl Batch {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let whole = (dialect == Dialect::Sqlite).then(|| {
            let mut whole = String::from("BEGIN IMMEDIATE;");
            for text in STATEMENTS {
                let mut text = text.to_owned();
                for (n, source) in SOURCES.iter().enumerate() {
                    text = text.replace(&format!("rows({source})"), &format!("rows(${})", n + 1));
                }
                whole.push_str(&dialect.spell(&text));
                whole.push(';');
            }
            whole.push_str("COMMIT");
            whole.into()
        });
        Self {
            whole,
            lock: Statement::new(LOCK_BALANCES, dialect),
            statements: STATEMENTS.map(|text| Statement::new(text, dialect)).into(),
            missing: Statement::new(MISSING, dialect),
        }
    }

    /// Commits `rows` and returns the attempts (task, seq) that were not begun. After an error nothing
    /// of it may be there, or all of it: running it again is right in both cases.
    pub(crate) async fn run(
        &self,
        connection: &mut AnyConnection,
        rows: &BatchRows,
    ) -> Result<Vec<(String, i64)>, sqlx::Error> {
        let inserted = match &self.whole {
            Some(whole) => run_whole(whole, connection, rows).await,
            None => self.run_each(connection, rows).await,
        };
        if inserted.is_err() {
            // Fails where the error ended the transaction already: either way none is open then.
            let _ = connection.execute("ROLLBACK").await;
        }
        if inserted? == rows.attempt_count {
            return Ok(Vec::new());
        }
        let answer = self.missing.query(rows).fetch_all(connection).await?;
        answer.iter().map(missing_attempt).collect()
    }

    /// Returns how many attempts were inserted.
    async fn run_each(&self, connection: &mut AnyConnection, rows: &BatchRows) -> Result<u64, sqlx::Error> {
        let mut inserted = 0;
        connection.execute("BEGIN").await?;
        self.lock.query(rows).execute(&mut *connection).await?;
        for (n, statement) in self.statements.iter().enumerate() {
            if statement.sources.iter().all(|source| rows.arrays()[*source] == "[]") {
                continue;
            }
            let done = statement.query(rows).execute(&mut *connection).await?;
            if n == ATTEMPTS_BEGUN {
                inserted = done.rows_affected();
            }
        }
        connection.execute("COMMIT").await?;
        Ok(inserted)
    }
}

async fn run_whole(
    whole: &Arc<str>,
    connection: &mut AnyConnection,
    rows: &BatchRows,
) -> Result<u64, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(whole.clone()));
    for array in rows.arrays() {
        query = query.bind(array);
    }
    let mut inserted = 0;
    // One result a statement; the first is BEGIN's.
    let mut place = 0;
    #[expect(deprecated, reason = "no other call of sqlx gives the result of each statement of a query")]
    let mut results = query.execute_many(connection).await;
    while let Some(done) = results.try_next().await? {
        if place == ATTEMPTS_BEGUN + 1 {
            inserted = done.rows_affected();
        }
        place += 1;
    }
    Ok(inserted)
}

impl Statement {
    /// Numbers the placeholders of the arrays that the text reads from $1.
    fn new(text: &str, dialect: Dialect) -> Self {
        let mut found: Vec<(usize, usize)> = SOURCES
            .iter()
            .enumerate()
            .filter_map(|(n, source)| text.find(&format!("rows({source})")).map(|at| (at, n)))
            .collect();
        found.sort_unstable();
        let mut text = text.to_owned();
        for (n, (_, source)) in found.iter().enumerate() {
            text = text.replace(&format!("rows({})", SOURCES[*source]), &format!("rows(${})", n + 1));
        }
        Self { sql: dialect.spell(&text).into(), sources: found.into_iter().map(|(_, n)| n).collect() }
    }

    fn query<'q>(&self, rows: &'q BatchRows) -> Query<'q, Any, AnyArguments> {
        let mut query = sqlx::query(AssertSqlSafe(self.sql.clone()));
        for source in &self.sources {
            query = query.bind(rows.arrays()[*source]);
        }
        query
    }
}

fn missing_attempt(row: &AnyRow) -> sqlx::Result<(String, i64)> {
    Ok((row.try_get("id")?, row.try_get("seq")?))
}

/// What the writer asks besides, outside the batch.
pub(crate) async fn balances(
    connection: &mut AnyConnection,
    dialect: Dialect,
    callers: &str,
) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let sql = dialect.spell(
        "SELECT c.caller_id, c.balance FROM credit_accounts c
         WHERE c.caller_id IN (SELECT j.value ->> 'caller' FROM rows($1) AS j)",
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(callers).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get("caller_id")?, row.try_get("balance")?))).collect()
}

/// The task that has a caller's key now, and when it came.
pub(crate) async fn key_holder(
    connection: &mut AnyConnection,
    caller_id: &str,
    key: &str,
) -> Result<Option<(String, i64)>, sqlx::Error> {
    let row =
        sqlx::query("SELECT id, created_at FROM ai_tasks WHERE caller_id = $1 AND idempotency_key = $2")
            .bind(caller_id)
            .bind(key)
            .fetch_optional(connection)
            .await?;
    row.map(|row| Ok((row.try_get("id")?, row.try_get("created_at")?))).transpose()
}

/// Takes a task's key away.
pub(crate) async fn free_key(connection: &mut AnyConnection, task_id: &str) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE ai_tasks SET idempotency_key = NULL WHERE id = $1")
        .bind(task_id)
        .execute(connection)
        .await?;
    Ok(())
}
