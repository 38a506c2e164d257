//! Commands as the JSON rows that [`crate::store::batch`] binds.

use forebay_engine::Usage;
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};

use super::entry::{AttemptBegin, AttemptEnd, AttemptStatus, TaskBegin, TaskEnd, TaskStatus};
use crate::store::batch::BatchRows;

impl TaskStatus {
    /// The word in tables and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::DeadLettered => "dead_lettered",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Codes whose request was not served, or whose caller left, and may come again at once: they free the
/// idempotency key.
const FREEING: [&str; 9] = [
    "insufficient_credits",
    "congested",
    "rate_limited",
    "too_many_concurrent_tasks",
    "quota_exceeded",
    "no_available_model",
    "overloaded",
    "shutting_down",
    "cancelled",
];

impl TaskEnd {
    /// Whether the idempotency key is free again: after 402, 429 and 503.
    fn frees_key(&self) -> bool {
        #[derive(Deserialize)]
        struct Coded<'a> {
            #[serde(borrow)]
            code: std::borrow::Cow<'a, str>,
        }
        self.error
            .as_deref()
            .and_then(|error| serde_json::from_str::<Coded<'_>>(error).ok())
            .is_some_and(|error| FREEING.contains(&error.code.as_ref()))
    }
}

/// `usage` as the tables keep it.
pub(super) fn usage_json(usage: &Usage) -> String {
    let mut text = format!(
        r#"{{"input_tokens":{},"cached_input_tokens":{},"cache_write_tokens":{},"output_tokens":{}"#,
        usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens, usage.output_tokens
    );
    let units = [
        ("images", usage.images),
        ("audio_millis", usage.audio_millis),
        ("characters", usage.characters),
        ("rerank_units", usage.rerank_units),
    ];
    for (name, count) in units.into_iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!(r#","{name}":{count}"#));
    }
    text.push_str(if usage.estimated { r#","estimated":true}"# } else { "}" });
    text
}

/// A JSON array of `rows`.
pub(super) fn array<T: Serialize>(rows: impl IntoIterator<Item = T>) -> String {
    let mut out = Vec::with_capacity(4_096);
    let mut serializer = serde_json::Serializer::new(&mut out);
    let written = serializer.serialize_seq(None).and_then(|mut seq| {
        rows.into_iter().try_for_each(|row| seq.serialize_element(&row))?;
        seq.end()
    });
    debug_assert!(written.is_ok(), "rows are maps of text and numbers");
    String::from_utf8(out).unwrap_or_else(|_| "[]".to_owned())
}

#[derive(Serialize)]
pub(super) struct BeginRow<'a> {
    id: &'a str,
    caller: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<&'a str>,
    asked: &'a str,
    alias: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    capability: &'static str,
    operation: &'a str,
    stream: u8,
    summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a str>,
    hold: i64,
    running: i64,
    prices: String,
    node: &'a str,
    at: i64,
    started: i64,
}

impl<'a> BeginRow<'a> {
    /// `running` is the sum of the caller's holds so far in the batch, this one included.
    pub(super) fn new(task: &'a TaskBegin, attempt: &AttemptBegin, running: i64, node: &'a str) -> Self {
        Self {
            id: &task.id,
            caller: &task.caller_id,
            key: task.idempotency.as_ref().map(|(key, _)| key.as_str()),
            hash: task.idempotency.as_ref().map(|(_, hash)| hash.as_str()),
            task_type: task.task_type.as_deref(),
            asked: &task.asked,
            alias: &task.alias,
            pool: task.pool.as_deref(),
            capability: task.capability.as_str(),
            operation: task.operation,
            stream: task.stream.into(),
            summary: &task.request_summary,
            metadata: task.metadata.as_deref(),
            hold: task.hold.0.max(0),
            running,
            prices: serde_json::to_string(&task.prices).unwrap_or_default(),
            node,
            at: task.created_at,
            started: attempt.started_at,
        }
    }
}

#[derive(Serialize)]
pub(super) struct RefusedRow<'a> {
    id: &'a str,
    caller: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<&'a str>,
    asked: &'a str,
    alias: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    capability: &'static str,
    operation: &'a str,
    status: &'static str,
    stream: u8,
    summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a str>,
    error: &'a str,
    node: &'a str,
    at: i64,
}

impl<'a> RefusedRow<'a> {
    pub(super) fn new(task: &'a TaskBegin, status: TaskStatus, error: &'a str, node: &'a str) -> Self {
        Self {
            id: &task.id,
            caller: &task.caller_id,
            task_type: task.task_type.as_deref(),
            asked: &task.asked,
            alias: &task.alias,
            pool: task.pool.as_deref(),
            capability: task.capability.as_str(),
            operation: task.operation,
            status: status.as_str(),
            stream: task.stream.into(),
            summary: &task.request_summary,
            metadata: task.metadata.as_deref(),
            error,
            node,
            at: task.created_at,
        }
    }
}

#[derive(Serialize)]
pub(super) struct AttemptRow<'a> {
    id: &'a str,
    seq: u32,
    kind: &'static str,
    reason: &'a str,
    provider: &'a str,
    model_id: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    node: &'a str,
    at: i64,
    waited: i64,
    generation: u64,
}

impl<'a> AttemptRow<'a> {
    pub(super) fn new(attempt: &'a AttemptBegin, node: &'a str) -> Self {
        Self {
            id: &attempt.task_id,
            seq: attempt.seq,
            kind: attempt.kind.as_str(),
            reason: &attempt.reason,
            provider: &attempt.provider,
            model_id: &attempt.model_id.0,
            model: &attempt.model,
            account_id: attempt.account.as_ref().map(|(id, _)| &*id.0),
            account: attempt.account.as_ref().map(|(_, label)| &**label),
            node,
            at: attempt.started_at,
            waited: attempt.waited_ms,
            generation: attempt.breaker_generation,
        }
    }
}

#[derive(Serialize)]
pub(super) struct AttemptEndRow<'a> {
    id: &'a str,
    seq: u32,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<i64>,
    took: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'static str>,
}

impl<'a> AttemptEndRow<'a> {
    pub(super) fn new(end: &'a AttemptEnd) -> Self {
        let unknown = end.outcome_unknown || end.status == AttemptStatus::OutcomeUnknown;
        Self {
            id: &end.task_id,
            seq: end.seq,
            status: end.status.as_str(),
            http: end.http_status,
            class: end.error_class.map(forebay_engine::Class::as_str),
            message: end.error_message.as_deref(),
            first: end.first_content_ms,
            took: end.duration_ms,
            remote: end.provider_task_id.as_deref(),
            usage: end.usage.as_ref().map(usage_json),
            cost: end.cost.map(|cost| cost.0),
            response: unknown.then_some(r#"{"outcome_unknown":true}"#),
        }
    }
}

/// What several statements need of a task's end.
#[derive(Serialize)]
pub(super) struct SettledRow<'a> {
    id: &'a str,
    charge: i64,
    kind: &'static str,
    at: i64,
}

impl<'a> SettledRow<'a> {
    pub(super) fn new(end: &'a TaskEnd) -> Self {
        Self { id: &end.task_id, charge: charge(end), kind: kind(end), at: end.finished_at }
    }
}

/// A task whose attempt may still be `sent`, and what becomes of it.
#[derive(Serialize)]
pub(super) struct ClosedRow<'a> {
    id: &'a str,
    closes: &'static str,
}

impl<'a> ClosedRow<'a> {
    /// `None` for a success: it has brought its last attempt along.
    pub(super) fn new(end: &'a TaskEnd) -> Option<Self> {
        let closes = match end.status {
            TaskStatus::Succeeded => return None,
            TaskStatus::OutcomeUnknown => "outcome_unknown",
            TaskStatus::Failed | TaskStatus::DeadLettered => "failed",
            TaskStatus::Cancelled => "cancelled",
        };
        Some(Self { id: &end.task_id, closes })
    }
}

#[derive(Serialize)]
pub(super) struct EndRow<'a> {
    id: &'a str,
    status: &'static str,
    kind: &'static str,
    charge: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    frees: Option<&'static str>,
}

impl<'a> EndRow<'a> {
    pub(super) fn new(end: &'a TaskEnd) -> Self {
        Self {
            id: &end.task_id,
            status: end.status.as_str(),
            kind: kind(end),
            charge: charge(end),
            output: end.output.as_deref(),
            usage: end.usage.as_ref().map(usage_json),
            error: end.error.as_deref(),
            model: end.final_model.as_deref(),
            at: end.finished_at,
            frees: end.frees_key().then_some("1"),
        }
    }
}

const fn kind(end: &TaskEnd) -> &'static str {
    if end.charge.is_some() { "settle" } else { "release" }
}

fn charge(end: &TaskEnd) -> i64 {
    end.charge.map_or(0, |charge| charge.0.max(0))
}

/// A row that is an id and nothing else.
#[derive(Serialize)]
pub(super) struct IdRow<'a> {
    pub id: &'a str,
}

/// Requests of an account on a day.
#[derive(Serialize)]
pub(super) struct RequestsRow<'a> {
    pub account: &'a str,
    pub day: &'a str,
    pub count: i64,
}

/// The arrays of ends alone.
pub(super) fn ends_only<'a>(ends: impl Iterator<Item = &'a TaskEnd> + Clone) -> BatchRows {
    BatchRows {
        begins: "[]".to_owned(),
        begun: "[]".to_owned(),
        attempts: "[]".to_owned(),
        attempt_count: 0,
        requests: "[]".to_owned(),
        ended: array(ends.clone().filter_map(|end| end.attempt.as_ref()).map(AttemptEndRow::new)),
        settled: array(ends.clone().map(SettledRow::new)),
        closed: array(ends.clone().filter_map(ClosedRow::new)),
        ends: array(ends.map(EndRow::new)),
        refused: "[]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(error: &str) -> TaskEnd {
        TaskEnd {
            task_id: "t".into(),
            status: TaskStatus::Failed,
            attempt: None,
            charge: None,
            output: None,
            usage: None,
            error: Some(error.into()),
            final_model: None,
            finished_at: 0,
        }
    }

    #[test]
    fn only_what_was_never_served_frees_its_key() {
        assert!(end(r#"{"code":"congested","message":"m"}"#).frees_key());
        assert!(!end(r#"{"code":"upstream_failed","message":"m"}"#).frees_key());
        assert!(!end("no JSON").frees_key());
    }

    #[test]
    fn nothing_is_an_empty_array() {
        assert_eq!(array(Vec::<u8>::new()), "[]");
    }
}
