//! /api/admin/breakers and /breaker-events.

use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::body::Body;
use super::error::AdminError;
use super::operator::{Administrator, Viewer};
use super::times::{moment_rfc3339, parse, rfc3339};
use crate::ledger::BreakerEvent;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForceOpen {
    seconds: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    since: Option<String>,
    limit: Option<u32>,
}

/// POST /breakers/{name}/reset
pub(super) async fn reset(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let changed = admin.reset_breaker(&by.name, &name).await?;
    Ok(Json(json!({ "model": name, "state": "closed", "was_closed": !changed })))
}

/// POST /breakers/reset
pub(super) async fn reset_all(
    by: Administrator,
    State(admin): State<Admin>,
) -> Result<Json<Value>, AdminError> {
    Ok(Json(json!({ "reset": admin.reset_breakers(&by.name, None).await? })))
}

/// POST /breakers/{name}/force-open
pub(super) async fn force_open(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Body(body): Body<ForceOpen>,
) -> Result<Json<Value>, AdminError> {
    let until = admin.force_breaker(&by.name, &name, body.seconds).await?;
    Ok(Json(json!({ "model": name, "state": "open", "open_until": moment_rfc3339(until) })))
}

/// GET /breaker-events
pub(super) async fn events(
    _: Viewer,
    State(admin): State<Admin>,
    query: Result<Query<Since>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(query) = query.map_err(AdminError::query)?;
    let since = query.since.as_deref().map(|text| parse("since", text, &admin.time_zone)).transpose()?;
    let limit = AdminError::page_limit(query.limit, 100)?;
    let events = admin.breaker_events.since(since.unwrap_or_default(), limit).await?;
    Ok(Json(json!({ "events": events.iter().map(event_json).collect::<Vec<_>>() })))
}

pub(super) fn event_json(event: &BreakerEvent) -> Value {
    json!({
        "at": rfc3339(event.at),
        "model": event.model,
        "from": event.from,
        "to": event.to,
        "cause": event.cause,
        "detail": event.detail,
        "generation": event.generation,
        "by": event.by_operator,
        "task_id": event.attempt.as_ref().map(|(task, _)| task),
        "seq": event.attempt.as_ref().map(|(_, seq)| seq),
    })
}

/// Why a breaker is as it is, for people.
pub(super) fn cause_text(event: &BreakerEvent) -> String {
    let cause = event.cause.replace('_', " ");
    let cause = event.detail.as_ref().map_or(cause.clone(), |detail| format!("{cause} ({detail})"));
    match &event.by_operator {
        Some(name) => format!("{cause} by {name}"),
        None => cause,
    }
}
