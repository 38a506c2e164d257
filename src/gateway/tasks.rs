//! GET /api/tasks and GET /api/tasks/{id}: a caller's own tasks.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use super::Gateway;
use super::answer::{public_usage, recorded_usage};
use super::error::{ApiError, Dialect};
use crate::exchange::ModelUpstream;
use crate::ledger::{Micros, StoreError, TaskFilter, TaskRow};
use crate::results::Results;

/// Tasks on a page, unless `limit` says otherwise; and the most.
const PAGE: (u32, u32) = (20, 100);
const STATUSES: [&str; 7] =
    ["queued", "running", "succeeded", "failed", "outcome_unknown", "dead_lettered", "cancelled"];

/// One task.
pub(super) async fn show<U: ModelUpstream>(
    State(gateway): State<Gateway<U>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let (caller, _) = gateway.caller(&headers)?;
        let task = gateway.ledger.task(&id, Some(&caller.id)).await.map_err(|_| ApiError::overloaded())?;
        task.ok_or_else(|| ApiError::not_found("there is no such task of this caller"))
    };
    match found.await {
        Ok(task) => {
            let mut response = Json(shown(&task, &gateway.results)).into_response();
            if let Ok(id) = task.id.parse() {
                response.headers_mut().insert("x-request-id", id);
            }
            response
        }
        Err(error) => error.response(Dialect::Forebay),
    }
}

/// The caller's tasks, newest first.
pub(super) async fn list<U: ModelUpstream>(
    State(gateway): State<Gateway<U>>,
    Query(pairs): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let (caller, _) = gateway.caller(&headers)?;
        let query = once_each(pairs)?;
        let (filter, limit) = read_query(&query, &caller.id)?;
        let cursor = query.get("cursor").map(String::as_str);
        let page = gateway.ledger.list(&filter, cursor, limit).await.map_err(|error| match error {
            StoreError::Cursor => ApiError::invalid("cursor", "must be the next_cursor of a page"),
            _ => ApiError::overloaded(),
        })?;
        let tasks: Vec<Value> = page.tasks.iter().map(|task| shown(task, &gateway.results)).collect();
        Ok::<_, ApiError>(json!({"tasks": tasks, "next_cursor": page.next_cursor}))
    };
    match found.await {
        Ok(page) => Json(page).into_response(),
        Err(error) => error.response(Dialect::Forebay),
    }
}

/// A filter that is given twice is a mistake, and not the last of the two.
fn once_each(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, ApiError> {
    let mut query = BTreeMap::new();
    for (name, value) in pairs {
        if query.contains_key(&name) {
            return Err(ApiError::invalid(&name, "is given twice"));
        }
        query.insert(name, value);
    }
    Ok(query)
}

fn read_query(query: &BTreeMap<String, String>, caller_id: &str) -> Result<(TaskFilter, u32), ApiError> {
    let known = ["status", "capability", "limit", "cursor"];
    if let Some(unknown) = query.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(ApiError::invalid(unknown, "is no filter; use status, capability, limit, cursor"));
    }
    if let Some(status) = query.get("status")
        && !STATUSES.contains(&status.as_str())
    {
        return Err(ApiError::invalid("status", &format!("must be one of {}", STATUSES.join(", "))));
    }
    if let Some(Err(wrong)) = query.get("capability").map(|text| text.parse::<forebay_engine::Capability>()) {
        return Err(ApiError::invalid("capability", &wrong.to_string()));
    }
    let limit = match query.get("limit").map(|text| text.parse::<u32>()) {
        None => PAGE.0,
        Some(Ok(limit)) if (1..=PAGE.1).contains(&limit) => limit,
        Some(_) => return Err(ApiError::invalid("limit", "must be a whole number between 1 and 100")),
    };
    let filter = TaskFilter {
        status: query.get("status").cloned(),
        capability: query.get("capability").cloned(),
        caller_id: Some(caller_id.to_owned()),
        outputs: true,
        ..TaskFilter::default()
    };
    Ok((filter, limit))
}

/// A task as its caller sees it.
fn shown(task: &TaskRow, results: &Results) -> Value {
    let time = |ms: i64| match ms {
        0 => Value::Null,
        ms => jiff::Timestamp::from_millisecond(ms).map_or(Value::Null, |at| at.to_string().into()),
    };
    let parse = |json: &Option<String>| json.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let done = task.finished_at != 0;
    let mut shown = Map::new();
    shown.insert("task_id".into(), json!(task.id));
    shown.insert("status".into(), json!(task.status));
    shown.insert("capability".into(), json!(task.capability));
    shown.insert("model".into(), json!(task.alias));
    shown.insert("created_at".into(), time(task.created_at));
    shown.insert("finished_at".into(), time(task.finished_at));
    shown.insert("progress".into(), json!(if done { 100 } else { 0 }));
    let mut output: Value = parse(&task.output).unwrap_or_default();
    results.show(&mut output);
    shown.insert("output".into(), output);
    let usage = task.usage.as_ref().map(|usage| public_usage(&recorded_usage(Some(usage))));
    shown.insert("usage".into(), json!(usage));
    shown.insert("credits_charged".into(), json!(task.credits_charged.map(Micros)));
    shown.insert("error".into(), parse(&task.error).unwrap_or_default());
    Value::Object(shown)
}
