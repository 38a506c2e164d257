//! What a served task answers, whole, in the shape of either surface.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use forebay_engine::Usage;
use forebay_engine::policy::Capability;
use forebay_wire::chat::disguise;
use serde::ser::{Serialize, SerializeMap, Serializer};
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
            let mut usage = json!({"prompt_tokens": input, "completion_tokens": self.usage.output_tokens,
                                   "total_tokens": input + self.usage.output_tokens});
            if self.usage.cached_input_tokens > 0 {
                usage["prompt_tokens_details"] = json!({"cached_tokens": self.usage.cached_input_tokens});
            }
            usage
        })
    }

    /// The response.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = match dialect {
            Dialect::Forebay => axum::Json(Generation(self)).into_response(),
            Dialect::OpenAi => axum::Json(Completion(self)).into_response(),
        };
        if let Ok(id) = self.task_id.parse() {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }
}

/// The body of a 200 of /api/generate.
struct Generation<'a>(&'a Answer);

impl Serialize for Generation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        for (name, value) in &self.0.summary() {
            body.serialize_entry(name, value)?;
        }
        body.serialize_entry("output", &self.0.output)?;
        body.end()
    }
}

/// The body of a 200 of /v1/chat/completions.
struct Completion<'a>(&'a Answer);

impl Serialize for Completion<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("id", &format_args!("chatcmpl-{}", self.0.task_id))?;
        body.serialize_entry("object", "chat.completion")?;
        body.serialize_entry("created", &self.0.created)?;
        body.serialize_entry("model", &self.0.alias)?;
        for (name, value) in &self.0.output {
            body.serialize_entry(name, value)?;
        }
        body.serialize_entry("usage", &self.0.openai_usage())?;
        body.end()
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
