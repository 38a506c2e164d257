//! Tasks: what crosses to the browser, and the server functions of the pages.

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::port::{Capability, Moment, PortError, Presence};

#[cfg(feature = "ssr")]
use {
    super::port::TasksPort,
    crate::session::api::{Role, authorise},
    crate::ui::format::pretty,
    std::sync::Arc,
};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waits for a worker.
    Queued,
    /// Under way.
    Running,
    /// Has its result.
    Succeeded,
    /// Every allowed attempt failed.
    Failed,
    /// The upstream may have done the work, and billed it; we can't tell.
    OutcomeUnknown,
    /// No available member could serve it.
    DeadLettered,
    /// Cancelled by its caller.
    Cancelled,
}

impl TaskStatus {
    /// Every status, in the order of the console's select.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::OutcomeUnknown,
        Self::DeadLettered,
        Self::Cancelled,
    ];

    /// The word of the API and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::DeadLettered => "dead_lettered",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// Which tasks to list; an absent field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFilter {
    /// Exactly this status.
    pub status: Option<TaskStatus>,
    /// Exactly this capability.
    pub capability: Option<Capability>,
    /// Pool key, as asked for.
    pub pool: Option<String>,
    /// A model's name: asked for, or of any attempt.
    pub model: Option<String>,
    /// The caller's name.
    pub caller: Option<String>,
    /// Error class of the task or of any attempt, so that tasks saved by a fallback are found.
    pub error_class: Option<String>,
    /// Created at or after: `2026-11-30T02:10` in FOREBAY_TIME_ZONE.
    pub from: Option<String>,
    /// Created before: `2026-11-30T02:10` in FOREBAY_TIME_ZONE.
    pub to: Option<String>,
    /// Text in the task's id.
    pub q: Option<String>,
}

/// One page of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPage {
    /// When the server answered.
    pub at: Moment,
    /// The tasks, newest first.
    pub tasks: Vec<TaskRow>,
    /// Where the next page begins; none on the last.
    pub next_cursor: Option<String>,
}

/// One task in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// UUID.
    pub id: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// What kind of work it is.
    pub capability: Capability,
    /// The pool it was sent to; none in model mode.
    pub pool: Option<String>,
    /// The model that served it, else the one asked for.
    pub model: Option<String>,
    /// The caller's name.
    pub caller: String,
    /// Real upstream requests made for it.
    pub attempts: u32,
    /// Class of its last failed attempt, also when the task succeeded after it.
    pub error_class: Option<String>,
    /// When it came.
    pub created_at: Moment,
    /// From then to its end; none while it runs.
    pub duration_ms: Option<i64>,
    /// Credits charged, decimal.
    pub charged: String,
}

/// What the filters offer to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChoices {
    /// Pool keys, sorted.
    pub pools: Vec<String>,
    /// Model names, sorted.
    pub models: Vec<String>,
    /// Caller names, sorted.
    pub callers: Vec<String>,
    /// Every error class the engine knows, in its order.
    pub error_classes: Vec<String>,
}

/// One task with its attempt chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDetail {
    /// UUID.
    pub id: String,
    /// Where it stands.
    pub status: TaskStatus,
    /// What kind of work it is.
    pub capability: Capability,
    /// `generate`, `edit`, …
    pub operation: Option<String>,
    /// What an old caller called it.
    pub task_type: Option<String>,
    /// The pool it was sent to; none in model mode.
    pub pool: Option<String>,
    /// The model asked for; none in pool mode.
    pub model: Option<String>,
    /// The model that served it.
    pub final_model: Option<String>,
    /// The caller's name.
    pub caller: String,
    /// Answered as a stream.
    pub stream: bool,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// When it came.
    pub created_at: Moment,
    /// When its first attempt began.
    pub started_at: Option<Moment>,
    /// When it ended.
    pub finished_at: Option<Moment>,
    /// From its coming to its end; none while it runs.
    pub duration_ms: Option<i64>,
    /// What the caller was told, if it failed.
    pub error: Option<TaskError>,
    /// What it cost.
    pub money: TaskMoney,
    /// Shape of the request, redacted; JSON.
    pub request_summary: Option<String>,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptView>,
    /// More attempts exist than are shown.
    pub attempts_capped: bool,
    /// What breakers did because of it.
    pub breaker_events: Vec<BreakerEventView>,
}

/// The error a caller was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// A code of the API.
    pub code: String,
    /// The message.
    pub message: String,
}

/// Money of a task, as decimal text of the accounting currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMoney {
    /// Credits held at the start; none where nothing was.
    pub held: Option<String>,
    /// Credits charged at the end; none while it runs.
    pub charged: Option<String>,
    /// What the attempts cost us; none when it can't be known.
    pub platform_cost: Option<String>,
}

/// Why an attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptKind {
    /// The first of the task.
    Initial,
    /// Again on the same model.
    Retry,
    /// On another model.
    Fallback,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// Out, no end yet.
    Sent,
    /// Gave the result.
    Succeeded,
    /// Failed for certain.
    Failed,
    /// The upstream may have done the work, and billed it.
    OutcomeUnknown,
    /// Cancelled by the caller.
    Cancelled,
}

/// One real upstream request, with names as they were then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// From 1.
    pub seq: u32,
    /// Why it was made.
    pub kind: AttemptKind,
    /// Why this member and account: `weight 6 of 10`, `other account`, …
    pub reason: String,
    /// The provider's key.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// The account's label; none where the provider needs none.
    pub account: Option<String>,
    /// How it ended.
    pub status: AttemptStatus,
    /// The upstream's status.
    pub http_status: Option<u16>,
    /// Class of its failure.
    pub error_class: Option<String>,
    /// The upstream's message, redacted.
    pub error_message: Option<String>,
    /// When it was sent.
    pub started_at: Moment,
    /// How long the task waited before it (queue or back-off), milliseconds.
    pub waited_ms: i64,
    /// From its start to the first content; streams.
    pub first_content_ms: Option<i64>,
    /// From its start to its end; none while it is out.
    pub duration_ms: Option<i64>,
    /// The provider's own id of the work.
    pub provider_task_id: Option<String>,
    /// Usage, JSON.
    pub usage: Option<String>,
    /// Platform cost, decimal; none when it can't be known.
    pub cost: Option<String>,
    /// The upstream may have done the work although this did not succeed.
    pub outcome_unknown: bool,
    /// Shape of the request, redacted; JSON.
    pub request_summary: Option<String>,
    /// Shape of the response, redacted; JSON.
    pub response_summary: Option<String>,
}

/// A change of a breaker's state that an attempt caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerEventView {
    /// The attempt's `seq`.
    pub seq: Option<u32>,
    /// The model's name.
    pub model: String,
    /// The new state.
    pub to: crate::pools::api::BreakerState,
    /// Why: `5 failures in a row (upstream)`.
    pub cause: String,
    /// When.
    pub at: Moment,
}

/// How many tasks a page of the list holds.
#[cfg(feature = "ssr")]
const PAGE: u32 = 50;

/// The list in one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksView {
    /// One page of it.
    pub page: TaskPage,
    /// What the filters offer.
    pub choices: TaskChoices,
}

/// The list, from behind `cursor`.
#[server]
pub async fn load_tasks(
    #[server(default)] filter: TaskFilter,
    cursor: Option<String>,
) -> Result<TasksView, PortError> {
    authorise(Role::Viewer, Presence::Acting).await?;
    let port = tasks();
    Ok(TasksView { page: port.list(&filter, cursor.as_deref(), PAGE).await?, choices: port.choices().await? })
}

/// The newest tasks. Asked every five seconds.
#[server]
pub async fn watch_tasks(#[server(default)] filter: TaskFilter) -> Result<TaskPage, PortError> {
    authorise(Role::Viewer, Presence::Watching).await?;
    tasks().list(&filter, None, PAGE).await
}

/// One task with its attempt chain. `presence` is Watching where the page asks by itself.
#[server]
pub async fn load_task(id: String, presence: Presence) -> Result<TaskDetail, PortError> {
    authorise(Role::Viewer, presence).await?;
    let mut task = tasks().detail(&id).await?;
    let attempts = task.attempts.iter_mut();
    let texts = attempts.flat_map(|a| [&mut a.usage, &mut a.request_summary, &mut a.response_summary]);
    for json in texts.chain([&mut task.request_summary]).flatten() {
        *json = pretty(json);
    }
    Ok(task)
}

#[cfg(feature = "ssr")]
fn tasks() -> Arc<dyn TasksPort> {
    expect_context()
}
