//! Tasks and their attempt chains: GET /api/admin/tasks, and the console's `TasksPort`.

use axum::Json;
use axum::extract::{Path, Query, State};
use forebay_app::port::{PortError, PortFuture};
use forebay_app::tasks::api as shown_as;
use forebay_app::tasks::port::TasksPort;
use forebay_engine::Class;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::breakers::cause_text;
use super::error::AdminError;
use super::operator::Viewer;
use super::pools::word;
use super::times::{ms, parse, rfc3339, shown, shown_unless_zero};
use crate::ledger::{AttemptRow, Micros, TaskFilter, TaskRow};

/// Attempts shown of one task: more than any task may make.
const ATTEMPTS: usize = 100;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    status: Option<String>,
    capability: Option<String>,
    pool: Option<String>,
    model: Option<String>,
    caller: Option<String>,
    error_class: Option<String>,
    from: Option<String>,
    to: Option<String>,
    q: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// GET /tasks
pub(super) async fn list(
    _: Viewer,
    State(admin): State<Admin>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, AdminError> {
    let Query(query) = query.map_err(AdminError::query)?;
    let limit = AdminError::page_limit(query.limit, 50)?;
    let Some(filter) = admin.filter(&query).await? else {
        return Ok(Json(json!({ "tasks": [], "next_cursor": null })));
    };
    let page = admin.ledger.list(&filter, query.cursor.as_deref(), limit).await?;
    let tasks: Vec<Value> = page.tasks.iter().map(task_json).collect();
    Ok(Json(json!({ "tasks": tasks, "next_cursor": page.next_cursor })))
}

/// GET /tasks/{id}
pub(super) async fn show(
    _: Viewer,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let (task, attempts) = admin.task_and_attempts(&id).await?;
    let mut shown = task_json(&task);
    shown["request_summary"] = admin.opened_summary(&task);
    shown["metadata"] = parsed(&task.metadata);
    shown["output"] = parsed(&task.output);
    shown["platform_cost"] = json!(platform_cost(&attempts));
    shown["attempts"] = attempts.iter().map(|attempt| attempt_json(attempt, &task)).collect();
    Ok(Json(shown))
}

impl Admin {
    /// What is kept of a task's request; a text that was kept sealed is opened.
    fn opened_summary(&self, task: &TaskRow) -> Value {
        let mut summary = parsed(&task.request_summary);
        if summary["content"].is_object() {
            let text = self.catalog.open_content(&task.id, &summary["content"]);
            summary["content"] =
                text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap_or_default());
        }
        summary
    }

    /// `None` when nothing can match: the caller does not exist.
    async fn filter(&self, query: &ListQuery) -> Result<Option<TaskFilter>, AdminError> {
        let words = |field: &'static str, given: &Option<String>, known: Vec<&'static str>| match given {
            Some(word) if !known.contains(&word.as_str()) => {
                Err(AdminError::invalid(field, format!("must be one of {}", known.join(", "))))
            }
            _ => Ok(()),
        };
        words("status", &query.status, shown_as::TaskStatus::ALL.map(shown_as::TaskStatus::as_str).into())?;
        words("capability", &query.capability, forebay_engine::Capability::ALL.map(|c| c.as_str()).into())?;
        words("error_class", &query.error_class, Class::ALL.map(Class::as_str).into())?;
        let time = |field: &str, text: &Option<String>| {
            text.as_deref().map(|text| parse(field, text, &self.time_zone)).transpose()
        };
        let (from, to) = (time("from", &query.from)?, time("to", &query.to)?);
        let caller_id = match &query.caller {
            None => None,
            Some(name) => match self.catalog.caller_id(name) {
                Ok(id) => Some(id),
                Err(_) => return Ok(None),
            },
        };
        Ok(Some(TaskFilter {
            outputs: false,
            status: query.status.clone(),
            capability: query.capability.clone(),
            pool: query.pool.clone(),
            model: query.model.clone(),
            caller_id,
            error_class: query.error_class.clone(),
            from,
            to,
            q: query.q.clone(),
        }))
    }

    async fn task_and_attempts(&self, id: &str) -> Result<(TaskRow, Vec<AttemptRow>), AdminError> {
        let task = self.ledger.task(id, None).await?;
        let task = task.ok_or_else(|| AdminError::not_found(format!("task {id}")))?;
        Ok((task, self.ledger.attempts(id).await?))
    }

    fn row(&self, task: TaskRow) -> Result<shown_as::TaskRow, PortError> {
        let model = task.final_model.clone().or_else(|| task.pool.is_none().then(|| task.asked.clone()));
        Ok(shown_as::TaskRow {
            status: word(&task.status, "status")?,
            capability: word(&task.capability, "capability")?,
            model,
            pool: task.pool,
            caller: task.caller,
            attempts: task.attempts,
            error_class: task.error_class,
            created_at: shown(task.created_at, &self.time_zone),
            duration_ms: (task.finished_at != 0).then(|| task.finished_at - task.created_at),
            charged: Micros(task.credits_charged.unwrap_or_default()).to_string(),
            id: task.id,
        })
    }

    fn attempt(&self, attempt: AttemptRow, task: &TaskRow) -> Result<shown_as::AttemptView, PortError> {
        Ok(shown_as::AttemptView {
            outcome_unknown: attempt.outcome_unknown(),
            seq: u32::try_from(attempt.seq).unwrap_or_default(),
            kind: word(&attempt.kind, "kind")?,
            reason: attempt.reason,
            provider: attempt.provider,
            model: attempt.model,
            account: attempt.account,
            status: word(&attempt.status, "status")?,
            http_status: attempt.http_status.and_then(|status| u16::try_from(status).ok()),
            error_class: attempt.error_class,
            error_message: attempt.error_message,
            started_at: shown(attempt.started_at, &self.time_zone),
            waited_ms: attempt.waited_ms,
            first_content_ms: attempt.first_content_ms,
            duration_ms: attempt.duration_ms,
            provider_task_id: attempt.provider_task_id,
            usage: attempt.usage,
            cost: attempt.cost.map(|cost| Micros(cost).to_string()),
            request_summary: attempt.request_summary.or_else(|| task.request_summary.clone()),
            response_summary: attempt.response_summary,
        })
    }
}

impl TasksPort for Admin {
    fn list<'a>(
        &'a self,
        filter: &'a shown_as::TaskFilter,
        cursor: Option<&'a str>,
        limit: u32,
    ) -> PortFuture<'a, shown_as::TaskPage> {
        Box::pin(async move {
            let query = ListQuery {
                status: filter.status.map(|status| status.as_str().to_owned()),
                capability: filter.capability.map(|capability| capability.as_str().to_owned()),
                pool: filter.pool.clone(),
                model: filter.model.clone(),
                caller: filter.caller.clone(),
                error_class: filter.error_class.clone(),
                from: filter.from.clone(),
                to: filter.to.clone(),
                q: filter.q.clone(),
                ..ListQuery::default()
            };
            let at = shown(ms(self.now()), &self.time_zone);
            let Some(filter) = self.filter(&query).await? else {
                return Ok(shown_as::TaskPage { at, tasks: Vec::new(), next_cursor: None });
            };
            let page = self.ledger.list(&filter, cursor, limit).await.map_err(AdminError::from)?;
            let tasks = page.tasks.into_iter().map(|task| self.row(task)).collect::<Result<_, _>>()?;
            Ok(shown_as::TaskPage { at, tasks, next_cursor: page.next_cursor })
        })
    }

    fn detail<'a>(&'a self, id: &'a str) -> PortFuture<'a, shown_as::TaskDetail> {
        Box::pin(async move {
            let (task, mut attempts) = self.task_and_attempts(id).await?;
            let events = self.breaker_events.of_task(id).await.map_err(AdminError::from)?;
            let cost = platform_cost(&attempts);
            let attempts_capped = attempts.len() > ATTEMPTS;
            attempts.truncate(ATTEMPTS);
            let views = attempts.into_iter().map(|attempt| self.attempt(attempt, &task));
            let error = task.error.as_deref().and_then(|error| serde_json::from_str::<Value>(error).ok());
            let text = |error: &Value, field: &str| error[field].as_str().unwrap_or_default().to_owned();
            Ok(shown_as::TaskDetail {
                attempts: views.collect::<Result<_, _>>()?,
                attempts_capped,
                breaker_events: events
                    .iter()
                    .map(|event| {
                        Ok(shown_as::BreakerEventView {
                            seq: event.attempt.as_ref().map(|(_, seq)| *seq),
                            model: event.model.clone(),
                            to: word(&event.to, "to")?,
                            cause: cause_text(event),
                            at: shown(event.at, &self.time_zone),
                        })
                    })
                    .collect::<Result<_, PortError>>()?,
                status: word(&task.status, "status")?,
                capability: word(&task.capability, "capability")?,
                operation: Some(task.operation.clone()),
                task_type: task.task_type.clone(),
                model: task.pool.is_none().then(|| task.asked.clone()),
                pool: task.pool.clone(),
                final_model: task.final_model.clone(),
                caller: task.caller.clone(),
                stream: task.stream,
                idempotency_key: task.idempotency_key.clone(),
                created_at: shown(task.created_at, &self.time_zone),
                started_at: shown_unless_zero(task.started_at, &self.time_zone),
                finished_at: shown_unless_zero(task.finished_at, &self.time_zone),
                duration_ms: (task.finished_at != 0).then(|| task.finished_at - task.created_at),
                error: error.map(|error| shown_as::TaskError {
                    code: text(&error, "code"),
                    message: text(&error, "message"),
                }),
                money: shown_as::TaskMoney {
                    held: (task.hold_state != "none").then(|| Micros(task.credits_held).to_string()),
                    charged: task.credits_charged.map(|charged| Micros(charged).to_string()),
                    platform_cost: cost.map(|cost| cost.to_string()),
                },
                request_summary: task
                    .request_summary
                    .as_ref()
                    .map(|_| self.opened_summary(&task).to_string()),
                id: task.id,
            })
        })
    }

    fn choices(&self) -> PortFuture<'_, shown_as::TaskChoices> {
        Box::pin(async {
            let snapshot = self.catalog.snapshot();
            let names =
                |rows: &[crate::catalog::ConfigRow]| rows.iter().map(|row| row.name.clone()).collect();
            Ok(shown_as::TaskChoices {
                pools: names(&snapshot.rows.pools),
                models: names(&snapshot.rows.models),
                callers: names(&snapshot.rows.callers),
                error_classes: Class::ALL.iter().map(ToString::to_string).collect(),
            })
        })
    }
}

/// What the attempts cost us; `None` while that of any is unknown.
fn platform_cost(attempts: &[AttemptRow]) -> Option<Micros> {
    attempts.iter().map(|attempt| attempt.cost.map(Micros)).sum()
}

fn task_json(task: &TaskRow) -> Value {
    json!({
        "task_id": task.id,
        "status": task.status,
        "capability": task.capability,
        "operation": task.operation,
        "task_type": task.task_type,
        "pool": task.pool,
        "asked": task.asked,
        "model": task.alias,
        "final_model": task.final_model,
        "caller": task.caller,
        "stream": task.stream,
        "idempotency_key": task.idempotency_key,
        "created_at": rfc3339(task.created_at),
        "started_at": rfc3339(task.started_at),
        "finished_at": rfc3339(task.finished_at),
        "duration_ms": (task.finished_at != 0).then(|| task.finished_at - task.created_at),
        "attempt_count": task.attempts,
        "error_class": task.error_class,
        "usage": parsed(&task.usage),
        "error": parsed(&task.error),
        "hold": task.hold_state,
        "credits_held": Micros(task.credits_held),
        "credits_charged": task.credits_charged.map(Micros),
    })
}

fn attempt_json(attempt: &AttemptRow, task: &TaskRow) -> Value {
    let mut response = parsed(&attempt.response_summary);
    if response.is_null() && attempt.status != "sent" {
        response = json!({ "outcome_unknown": false });
    }
    json!({
        "seq": attempt.seq,
        "kind": attempt.kind,
        "reason": attempt.reason,
        "provider": attempt.provider,
        "model": attempt.model,
        "account": attempt.account,
        "node": attempt.node_id,
        "status": attempt.status,
        "http_status": attempt.http_status,
        "error_class": attempt.error_class,
        "error_message": attempt.error_message,
        "started_at": rfc3339(attempt.started_at),
        "waited_ms": attempt.waited_ms,
        "first_content_ms": attempt.first_content_ms,
        "duration_ms": attempt.duration_ms,
        "provider_task_id": attempt.provider_task_id,
        "usage": parsed(&attempt.usage),
        "cost": attempt.cost.map(Micros),
        "breaker_generation": attempt.breaker_generation,
        "request_summary": parsed(if attempt.request_summary.is_some() { &attempt.request_summary } else { &task.request_summary }),
        "response_summary": response,
    })
}

fn parsed(json: &Option<String>) -> Value {
    json.as_deref().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}
