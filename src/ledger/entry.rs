//! What is written down: a task's begin, each attempt, and the end.

use std::sync::Arc;

use forebay_engine::{AccountId, Capability, Class, ModelId, Usage};

pub use forebay_engine::attempt::{AttemptKind, AttemptStatus};

use super::money::{Micros, Prices};

/// A task as it begins.
#[derive(Clone, Debug)]
pub struct TaskBegin {
    /// UUIDv7.
    pub id: String,
    /// Who pays; the row's id.
    pub caller_id: Arc<str>,
    /// The caller's Idempotency-Key and the hash of its request.
    pub idempotency: Option<(String, String)>,
    /// Kept from old callers.
    pub task_type: Option<String>,
    /// The pool's key, or the model's name where a model was asked for.
    pub asked: String,
    /// The name that the caller used, and that answers repeat.
    pub alias: String,
    /// The pool's key, where a pool serves it.
    pub pool: Option<String>,
    /// What is generated.
    pub capability: Capability,
    /// `generate` unless the caller said otherwise.
    pub operation: &'static str,
    /// A streamed answer.
    pub stream: bool,
    /// Roles, lengths, parameters as JSON; no content unless the pool stores it.
    pub request_summary: String,
    /// The caller's `metadata` as JSON.
    pub metadata: Option<String>,
    /// Credits set aside until the end.
    pub hold: Micros,
    /// The prices at this moment, which the settlement uses.
    pub prices: Prices,
    /// Milliseconds UTC.
    pub created_at: i64,
}

/// An attempt just before it is sent.
#[derive(Clone, Debug)]
pub struct AttemptBegin {
    /// The task's id.
    pub task_id: String,
    /// 1, 2, 3 … within the task.
    pub seq: u32,
    /// Why it is made.
    pub kind: AttemptKind,
    /// Why this member and account were chosen, in words.
    pub reason: String,
    /// The provider's key as of now.
    pub provider: Arc<str>,
    /// The model.
    pub model_id: ModelId,
    /// The model's name as of now.
    pub model: Arc<str>,
    /// The account and its label as of now.
    pub account: Option<(AccountId, Arc<str>)>,
    /// Milliseconds UTC.
    pub started_at: i64,
    /// How long it waited for room or backed off before.
    pub waited_ms: i64,
    /// The breaker's generation that admitted it.
    pub breaker_generation: u64,
}

/// An attempt's end.
#[derive(Clone, Debug)]
pub struct AttemptEnd {
    /// The task's id.
    pub task_id: String,
    /// Which attempt.
    pub seq: u32,
    /// What became of it.
    pub status: AttemptStatus,
    /// It may have been done, and billed (also true of some cancelled and failed ones).
    pub outcome_unknown: bool,
    /// The upstream's status.
    pub http_status: Option<u16>,
    /// The class of its failure.
    pub error_class: Option<Class>,
    /// Redacted.
    pub error_message: Option<String>,
    /// Milliseconds from its start to the first content, of a stream.
    pub first_content_ms: Option<i64>,
    /// Milliseconds from its start to its end.
    pub duration_ms: i64,
    /// The provider's own id for it.
    pub provider_task_id: Option<String>,
    /// What it consumed.
    pub usage: Option<Usage>,
    /// What we pay for it; `None` = unknown, never 0.
    pub cost: Option<Micros>,
}

/// Where a task can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Answered.
    Succeeded,
    /// Certainly not answered.
    Failed,
    /// We can't tell.
    OutcomeUnknown,
    /// Nobody could serve it, and it was asynchronous.
    DeadLettered,
    /// The caller left or asked for it.
    Cancelled,
}

/// A task's end: result, settlement or release, and the last attempt's end, in one commit.
#[derive(Clone, Debug)]
pub struct TaskEnd {
    /// The task's id.
    pub task_id: String,
    /// Where it ended.
    pub status: TaskStatus,
    /// Its last attempt, where that is not recorded yet.
    pub attempt: Option<AttemptEnd>,
    /// `Some`: settle for so much (never more than the hold). `None`: release, the caller pays 0.
    pub charge: Option<Micros>,
    /// The answer as JSON, as GET /api/tasks shows it and as a replay repeats it.
    pub output: Option<String>,
    /// What it consumed.
    pub usage: Option<Usage>,
    /// The error as JSON: `{"code", "message", …}`.
    pub error: Option<String>,
    /// The model that served it.
    pub final_model: Option<Arc<str>>,
    /// Milliseconds UTC.
    pub finished_at: i64,
}

/// Why a task was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing was written.
    #[error("the caller's credits do not cover the reservation")]
    InsufficientCredits,
    /// The caller used this Idempotency-Key before: the task that has it.
    #[error("the idempotency key belongs to task {task_id}")]
    DuplicateKey {
        /// That task.
        task_id: String,
    },
    /// The writer has no place left.
    #[error("the ledger is full")]
    Overloaded,
    /// The database does not take it.
    #[error("the database is not available")]
    Unavailable,
}
