//! What a served task answers, whole, in the shape of either surface.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay_engine::Usage;
use forebay_engine::policy::Capability;
use forebay_wire::chat::disguise;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::error::{ApiError, Dialect};
use crate::exchange::Operation;
use crate::ledger::{KeyedTask, Micros};
use crate::results::Results;

/// In what shape an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As /api/generate writes it.
    Forebay,
    /// As OpenAI's API writes it.
    OpenAi,
    /// A transcript as nothing but text.
    Plain,
}

/// A task that was served.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) task_id: Arc<str>,
    pub(crate) operation: Operation,
    pub(crate) alias: String,
    /// Seconds UTC.
    pub(crate) created: i64,
    /// The answer's own fields but `id`, `object`, `created`, `model` and `usage`. Results that we keep
    /// stand in it as marks.
    pub(crate) output: Map<String, Value>,
    pub(crate) usage: Usage,
    /// The upstream's own usage object, where it is still known.
    pub(crate) reported_usage: Option<Value>,
    pub(crate) charged: Micros,
    /// No model gave it: it is the pool's `fallback_template`.
    pub(crate) is_template: bool,
}

/// A finished task, served or not; what everyone who sent the same key is told.
pub(crate) type Finished = Result<Arc<Answer>, Arc<ApiError>>;

impl Answer {
    /// Splits what an upstream answered into what is ours to say and what is kept.
    pub(crate) fn split(mut answer: Map<String, Value>) -> (Map<String, Value>, Option<Value>) {
        disguise(&mut answer, "", "");
        let mut usage = None;
        answer.retain(|name, value| match name.as_str() {
            "id" | "object" | "created" | "created_at" | "model" => false,
            "usage" => {
                usage = Some(value.take()).filter(Value::is_object).map(known_usage);
                false
            }
            _ => true,
        });
        (answer, usage)
    }

    /// From the task that an idempotency key belongs to, once it has ended.
    pub(crate) fn of_task(keyed: &KeyedTask) -> Finished {
        let task = &keyed.task;
        if task.status != "succeeded" {
            return Err(Arc::new(recorded_error(task.error.as_deref()).of_task(&task.id)));
        }
        let parse = |json: &Option<String>| serde_json::from_str(json.as_deref()?).ok();
        let capability = task.capability.parse().unwrap_or(Capability::Text);
        Ok(Arc::new(Self {
            task_id: task.id.as_str().into(),
            operation: Operation::of(capability, &task.operation).unwrap_or(Operation::Chat),
            alias: task.alias.clone(),
            created: task.created_at / 1_000,
            output: parse(&task.output).unwrap_or_default(),
            usage: recorded_usage(task.usage.as_deref()),
            reported_usage: None,
            charged: Micros(task.credits_charged.unwrap_or(0)),
            is_template: task.final_model.as_deref() == Some(FALLBACK_TEMPLATE),
        }))
    }

    /// The body of a 200 of /api/generate less `output`: what ends a stream.
    pub(crate) fn summary(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("task_id".into(), json!(self.task_id));
        body.insert("status".into(), "succeeded".into());
        body.insert("capability".into(), self.operation.capability().as_str().into());
        body.insert("model".into(), self.alias.clone().into());
        body.insert("usage".into(), public_usage(&self.usage));
        body.insert("credits_charged".into(), json!(self.charged));
        body
    }

    /// Usage as OpenAI's API says it; `None` where it says none.
    pub(crate) fn openai_usage(&self) -> Option<Value> {
        let input = self.usage.all_input_tokens();
        let output = self.usage.output_tokens;
        if self.reported_usage.is_some() {
            return self.reported_usage.clone();
        }
        let cached = self.usage.cached_input_tokens;
        Some(match self.operation {
            Operation::Chat | Operation::Completion => {
                let mut usage = json!({"prompt_tokens": input, "completion_tokens": output,
                                       "total_tokens": input + output});
                if cached > 0 {
                    usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
                }
                usage
            }
            Operation::Responses => {
                json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": cached},
                       "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
                       "total_tokens": input + output})
            }
            Operation::Embedding => json!({"prompt_tokens": input, "total_tokens": input}),
            Operation::Rerank => json!({"total_tokens": input}),
            Operation::Transcription if self.usage.audio_millis > 0 => {
                json!({"type": "duration", "seconds": self.usage.audio_millis as f64 / 1_000.0})
            }
            _ => return None,
        })
    }

    /// The response. Results that are kept are shown by their addresses, or read back where the caller
    /// wanted them inside.
    pub(crate) async fn response(&self, shape: Shape, results: &Results) -> Response {
        let shown;
        let output = match self.operation {
            Operation::Speech if shape == Shape::OpenAi => return self.spoken(results).await,
            Operation::Image | Operation::ImageEdit | Operation::Speech => {
                let mut output = Value::Object(self.output.clone());
                inline(&mut output, results).await;
                results.show(&mut output);
                shown = output.as_object().cloned().unwrap_or_default();
                &shown
            }
            _ => &self.output,
        };
        let mut response = match shape {
            Shape::Forebay => axum::Json(Generation { answer: self, output }).into_response(),
            Shape::OpenAi => axum::Json(OpenAiBody { answer: self, output }).into_response(),
            Shape::Plain => {
                output.get("text").and_then(Value::as_str).unwrap_or_default().to_owned().into_response()
            }
        };
        self.mark(response.headers_mut());
        response
    }

    /// What every response of this answer carries.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Ok(id) = self.task_id.parse() {
            headers.insert("x-request-id", id);
        }
        if self.is_template {
            headers.insert("x-forebay-fallback", HeaderValue::from_static("template"));
        }
    }

    /// The file once more, of a request that came with a key.
    async fn spoken(&self, results: &Results) -> Response {
        let audio = self.output.get("audio").cloned().unwrap_or_default();
        let file = audio["url"].as_str().and_then(|mark| results.file(mark));
        let bytes = match file {
            Some(file) => tokio::fs::read(file).await.ok(),
            None => None,
        };
        let Some(bytes) = bytes else {
            return ApiError::not_found("the audio of this task is not kept any more")
                .of_task(&self.task_id)
                .response(Dialect::OpenAi);
        };
        let content_type = audio["content_type"].as_str().unwrap_or("audio/mpeg").to_owned();
        let mut response = ([(header::CONTENT_TYPE, content_type)], bytes).into_response();
        self.mark(response.headers_mut());
        response
    }
}

/// What a task that no model served is said to be served by.
pub(crate) const FALLBACK_TEMPLATE: &str = "fallback_template";

/// Reads kept images back into `b64_json`, where that is what the caller asked for.
async fn inline(output: &mut Value, results: &Results) {
    let data = output.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten();
    for item in data.filter_map(|item| item.get_mut("b64_json")) {
        if let Some(file) = item.as_str().and_then(|mark| results.file(mark))
            && let Ok(bytes) = tokio::fs::read(file).await
        {
            *item = STANDARD.encode(bytes).into();
        }
    }
}

/// The fields of a usage object that name no provider.
fn known_usage(usage: Value) -> Value {
    let Value::Object(mut usage) = usage else { return usage };
    usage.retain(|name, _| {
        name.ends_with("_tokens")
            || name.ends_with("_tokens_details")
            || matches!(name.as_str(), "type" | "seconds")
    });
    Value::Object(usage)
}

/// The body of a 200 of /api/generate.
struct Generation<'a> {
    answer: &'a Answer,
    output: &'a Map<String, Value>,
}

impl Serialize for Generation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        for (name, value) in &self.answer.summary() {
            body.serialize_entry(name, value)?;
        }
        body.serialize_entry("output", self.output)?;
        body.end()
    }
}

/// The body of a 200 of /v1.
struct OpenAiBody<'a> {
    answer: &'a Answer,
    output: &'a Map<String, Value>,
}

impl Serialize for OpenAiBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let answer = self.answer;
        let mut body = serializer.serialize_map(None)?;
        if let Some(prefix) = id_prefix(answer.operation) {
            body.serialize_entry("id", &format_args!("{prefix}-{}", answer.task_id))?;
        }
        if let Some(object) = object(answer.operation) {
            body.serialize_entry("object", object)?;
        }
        match answer.operation {
            Operation::Responses => body.serialize_entry("created_at", &answer.created)?,
            Operation::Chat | Operation::Completion | Operation::Image | Operation::ImageEdit => {
                body.serialize_entry("created", &answer.created)?;
            }
            _ => {}
        }
        if !matches!(answer.operation, Operation::Image | Operation::ImageEdit | Operation::Transcription) {
            body.serialize_entry("model", &answer.alias)?;
        }
        for (name, value) in self.output {
            body.serialize_entry(name, value)?;
        }
        if let Some(usage) = answer.openai_usage() {
            body.serialize_entry("usage", &usage)?;
        }
        body.end()
    }
}

/// What the id of an answer begins with, where it has one.
pub(super) const fn id_prefix(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Chat => Some("chatcmpl"),
        Operation::Completion => Some("cmpl"),
        Operation::Responses => Some("resp"),
        Operation::Rerank => Some("rerank"),
        Operation::Moderation => Some("modr"),
        _ => None,
    }
}

const fn object(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::Chat => Some("chat.completion"),
        Operation::Completion => Some("text_completion"),
        Operation::Responses => Some("response"),
        Operation::Embedding | Operation::Rerank => Some("list"),
        _ => None,
    }
}

/// Usage as /api shows it: tokens always, other units where there are any.
pub(crate) fn public_usage(usage: &Usage) -> Value {
    let mut shown = json!({"input_tokens": usage.all_input_tokens(), "output_tokens": usage.output_tokens});
    let units = [
        ("cached_input_tokens", usage.cached_input_tokens),
        ("images", usage.images),
        ("characters", usage.characters),
        ("rerank_units", usage.rerank_units),
    ];
    for (name, count) in units.into_iter().filter(|(_, count)| *count > 0) {
        shown[name] = count.into();
    }
    if usage.audio_millis > 0 {
        shown["audio_seconds"] = json!(usage.audio_millis as f64 / 1_000.0);
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
        images: number("images"),
        audio_millis: number("audio_millis"),
        characters: number("characters"),
        rerank_units: number("rerank_units"),
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
