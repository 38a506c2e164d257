//! What a served task answers, whole, in the shape of either surface.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use forebay_engine::Usage;
use forebay_engine::policy::Capability;
use forebay_wire::chat::disguise;
use serde_json::{Map, Value, json};

use super::error::{ApiError, Dialect};
use crate::ledger::{KeyedTask, Micros};

/// A task that was served.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) task_id: Arc<str>,
    pub(crate) capability: Capability,
    pub(crate) alias: String,
    /// Seconds UTC.
    pub(crate) created: i64,
    /// The answer's own fields but `id`, `object`, `created`, `model` and `usage`.
    pub(crate) output: Map<String, Value>,
    pub(crate) usage: Usage,
    /// The upstream's own usage object, where it is still known.
    pub(crate) reported_usage: Option<Value>,
    pub(crate) charged: Micros,
}

/// A finished task, served or not; what everyone who sent the same key is told.
pub(crate) type Finished = Result<Arc<Answer>, Arc<ApiError>>;

impl Answer {
    /// Splits what an upstream answered into what is ours to say and what is kept.
    pub(crate) fn split(mut answer: Map<String, Value>) -> (Map<String, Value>, Option<Value>) {
        disguise(&mut answer, "", "");
        for ours in ["id", "object", "created", "model"] {
            answer.shift_remove(ours);
        }
        let usage = answer.shift_remove("usage").filter(Value::is_object);
        (answer, usage)
    }

    /// From the task that an idempotency key belongs to, once it has ended.
    pub(crate) fn of_task(keyed: &KeyedTask) -> Finished {
        let task = &keyed.task;
        if task.status != "succeeded" {
            return Err(Arc::new(recorded_error(task.error.as_deref()).of_task(&task.id)));
        }
        let parse = |json: &Option<String>| serde_json::from_str(json.as_deref()?).ok();
        Ok(Arc::new(Self {
            task_id: task.id.as_str().into(),
            capability: task.capability.parse().unwrap_or(Capability::Text),
            alias: task.alias.clone(),
            created: task.created_at / 1_000,
            output: parse(&task.output).unwrap_or_default(),
            usage: recorded_usage(task.usage.as_deref()),
            reported_usage: None,
            charged: Micros(task.credits_charged.unwrap_or(0)),
        }))
    }

    /// The body of a whole answer.
    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Forebay => {
                let mut body = self.summary();
                body.insert("output".into(), Value::Object(self.output.clone()));
                Value::Object(body)
            }
            Dialect::OpenAi => {
                let mut body = Map::new();
                body.insert("id".into(), json!(format!("chatcmpl-{}", self.task_id)));
                body.insert("object".into(), "chat.completion".into());
                body.insert("created".into(), self.created.into());
                body.insert("model".into(), self.alias.clone().into());
                body.extend(self.output.clone());
                body.insert("usage".into(), self.openai_usage());
                Value::Object(body)
            }
        }
    }

    /// The body of a 200 of /api/generate less `output`: what ends a stream.
    pub(crate) fn summary(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("task_id".into(), json!(self.task_id));
        body.insert("status".into(), "succeeded".into());
        body.insert("capability".into(), self.capability.as_str().into());
        body.insert("model".into(), self.alias.clone().into());
        body.insert("usage".into(), public_usage(&self.usage));
        body.insert("credits_charged".into(), json!(self.charged));
        body
    }

    /// Usage in OpenAI's shape.
    pub(crate) fn openai_usage(&self) -> Value {
        self.reported_usage.clone().unwrap_or_else(|| {
            let input = self.usage.all_input_tokens();
            json!({"prompt_tokens": input, "completion_tokens": self.usage.output_tokens,
                   "total_tokens": input + self.usage.output_tokens,
                   "prompt_tokens_details": {"cached_tokens": self.usage.cached_input_tokens}})
        })
    }

    /// The response.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = axum::Json(self.body(dialect)).into_response();
        if let Ok(id) = self.task_id.parse() {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }
}

/// Usage as /api shows it.
pub(crate) fn public_usage(usage: &Usage) -> Value {
    let mut shown = json!({"input_tokens": usage.all_input_tokens(), "output_tokens": usage.output_tokens});
    if usage.cached_input_tokens > 0 {
        shown["cached_input_tokens"] = usage.cached_input_tokens.into();
    }
    if usage.estimated {
        shown["estimated"] = true.into();
    }
    shown
}

/// Usage as the ledger keeps it.
pub(crate) fn recorded_usage(json: Option<&str>) -> Usage {
    let value: Value = json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let number = |name: &str| value[name].as_u64().unwrap_or(0);
    Usage {
        input_tokens: number("input_tokens"),
        cached_input_tokens: number("cached_input_tokens"),
        cache_write_tokens: number("cache_write_tokens"),
        output_tokens: number("output_tokens"),
        estimated: value["estimated"] == true,
    }
}

/// The error that a task ended with, as it was told then.
fn recorded_error(json: Option<&str>) -> ApiError {
    use axum::http::StatusCode;
    let value: Value = json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let (status, code) = match value["code"].as_str().unwrap_or_default() {
        "invalid_request" => (StatusCode::BAD_REQUEST, "invalid_request"),
        "unsupported" => (StatusCode::BAD_REQUEST, "unsupported"),
        "content_rejected" => (StatusCode::BAD_REQUEST, "content_rejected"),
        "outcome_unknown" => (StatusCode::GATEWAY_TIMEOUT, "outcome_unknown"),
        "deadline_exceeded" => (StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"),
        "cancelled" => (StatusCode::CONFLICT, "idempotency_conflict"),
        _ => (StatusCode::BAD_GATEWAY, "upstream_failed"),
    };
    let message = value["message"].as_str().unwrap_or("the task did not succeed");
    ApiError { param: value["param"].as_str().map(str::to_owned), ..ApiError::new(status, code, message) }
}
