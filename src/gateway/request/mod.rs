//! A caller's request, read and checked: field by field, and what is wrong is named.

mod body;
mod fields;
mod idempotency;
mod input;
mod target;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use forebay_engine::policy::Capability;
use forebay_engine::task::Route;
use forebay_engine::{GroupKey, ModelId, Needs, Usage};
use serde_json::{Map, Value, json};

use self::body::RequestBody;
use self::fields::{Place, flag, text};
use self::target::Target;
use super::answer::Shape;
use super::error::{ApiError, Dialect};
use crate::catalog::{Caller, Snapshot};
use crate::exchange::{FilePart, Operation};
use crate::ledger::Prices;

pub(super) use self::body::read as read_body;

/// A request that may be run.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) dialect: Dialect,
    pub(crate) route: Route,
    /// The pool's key or the model's name.
    pub(crate) asked: String,
    /// The name that the caller used.
    pub(crate) alias: String,
    pub(crate) operation: Operation,
    pub(crate) task_type: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) stream: bool,
    pub(crate) thinking: bool,
    pub(crate) needs: Needs,
    pub(crate) deadline: Option<Duration>,
    /// Preferred: the request's, else the caller's, else the pool's.
    pub(crate) region: Option<Arc<str>>,
    /// Tried first: the pool's deep-thinking model, where thinking is asked for.
    pub(crate) prefer: Option<ModelId>,
    /// The caller wants usage in its stream.
    pub(crate) include_usage: bool,
    /// The fields that go upstream.
    pub(crate) input: Arc<Map<String, Value>>,
    pub(crate) files: Arc<[FilePart]>,
    /// What it consumes at most, but for the input's tokens.
    pub(crate) worst: Usage,
    pub(crate) prices: Prices,
    pub(crate) min_content_chars: usize,
    /// The Idempotency-Key and the hash of what was asked with it.
    pub(crate) idempotency: Option<(String, String)>,
}

impl Asked {
    /// What is generated.
    pub(crate) const fn capability(&self) -> Capability {
        self.operation.capability()
    }

    /// The pool's key, where a pool is asked.
    pub(crate) fn pool(&self) -> Option<&GroupKey> {
        match &self.route {
            Route::Pool(key) => Some(key),
            Route::Model(_) => None,
        }
    }

    /// In what shape the answer is written.
    pub(crate) fn shape(&self) -> Shape {
        let format = self.input.get("response_format").and_then(Value::as_str);
        match (self.dialect, self.operation, format) {
            (Dialect::OpenAi, Operation::Transcription, Some("text" | "srt" | "vtt")) => Shape::Plain,
            (Dialect::OpenAi, ..) => Shape::OpenAi,
            (Dialect::Forebay, ..) => Shape::Forebay,
        }
    }

    /// What the task keeps of the request: its shape, and its text only as `content`, sealed.
    pub(crate) fn summary(&self, content: Option<Value>) -> String {
        let mut summary = Map::new();
        if let Some(content) = content {
            summary.insert("content".into(), content);
        }
        if let Some(messages) = self.input.get("messages").and_then(Value::as_array) {
            let messages = messages.iter().map(|message| {
                let content = &message["content"];
                let length = content.as_str().map_or_else(|| content.to_string().len(), str::len);
                json!({"role": message["role"], "bytes": length})
            });
            summary.insert("messages".into(), messages.collect());
        }
        let mut parameters = Map::new();
        let mut bytes = Map::new();
        for (name, value) in self.input.iter().filter(|(name, _)| *name != "messages") {
            match value {
                Value::Number(_) | Value::Bool(_) => drop(parameters.insert(name.clone(), value.clone())),
                Value::String(_) if CHOICES.contains(&name.as_str()) => {
                    parameters.insert(name.clone(), value.clone());
                }
                Value::Null => {}
                Value::String(text) => drop(bytes.insert(name.clone(), text.len().into())),
                other => drop(bytes.insert(name.clone(), other.to_string().len().into())),
            }
        }
        summary.insert("parameters".into(), parameters.into());
        if !bytes.is_empty() {
            summary.insert("bytes".into(), bytes.into());
        }
        if !self.files.is_empty() {
            let files = self.files.iter().map(|file| json!({"name": file.name, "bytes": file.source.size()}));
            summary.insert("files".into(), files.collect());
        }
        Value::Object(summary).to_string()
    }
}

/// Fields whose texts are choices and no content.
const CHOICES: [&str; 13] = [
    "size",
    "ratio",
    "aspect_ratio",
    "resolution",
    "quality",
    "style",
    "background",
    "response_format",
    "output_format",
    "voice",
    "language",
    "encoding_format",
    "reasoning_effort",
];

/// Reads a body of POST /api/generate.
pub(crate) fn read_generate(
    body: RequestBody,
    headers: &HeaderMap,
    snapshot: &Snapshot,
    caller: &Caller,
) -> Result<Asked, ApiError> {
    let RequestBody { fields: mut body, files, place } = body;
    if place == Place::Form || !files.is_empty() {
        return Err(ApiError::invalid("body", "must be JSON; files go into input as URLs or data URLs"));
    }
    let idempotency = idempotency::key_and_hash(headers, "/api/generate", &body, &[])?;
    let group = text(&mut body, "model_group")?;
    let model_id = text(&mut body, "ai_model_id")?;
    let model = text(&mut body, "model")?;
    let task_type = text(&mut body, "task_type")?;
    let capability = text(&mut body, "capability")?;
    let operation = text(&mut body, "operation")?;
    let region = text(&mut body, "region")?;
    let stream = flag(&mut body, "stream")?;
    let thinking = flag(&mut body, "thinking")?;
    if flag(&mut body, "async")? {
        return Err(ApiError::not_served("async"));
    }
    for later in ["cache", "webhook"] {
        if body.shift_remove(later).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false))) {
            return Err(ApiError::not_served(later));
        }
    }
    let deadline = deadline(body.shift_remove("deadline_ms"))?;
    let metadata = metadata(body.shift_remove("metadata"))?;
    let input = match body.shift_remove("input") {
        Some(Value::Object(input)) => input,
        Some(_) => return Err(ApiError::invalid("input", "must be an object")),
        None => return Err(ApiError::invalid("input", "is missing; put the capability's body there")),
    };
    if let Some(unknown) = body.keys().next() {
        let remedy = "is not a field of this request; fields for the model belong inside input";
        return Err(ApiError::invalid(unknown, remedy));
    }
    for own in ["model", "stream"] {
        if input.contains_key(own) {
            let field = format!("input.{own}");
            return Err(ApiError::invalid(&field, "belongs beside input, not inside it"));
        }
    }

    let mapped = task_type.as_ref().and_then(|name| snapshot.settings.task_types.get(name));
    let mapped = |field: &str| mapped.and_then(|fields| fields.get(field)?.as_str());
    let checked = match &capability {
        Some(word) => Some(word.parse().map_err(|wrong: forebay_engine::policy::Invalid| {
            ApiError::invalid("capability", &wrong.to_string())
        })?),
        None => None,
    };
    let wanted: Option<Capability> = checked.or_else(|| mapped("capability")?.parse().ok());
    let names = [group.as_deref(), model_id.as_deref(), model.as_deref()];
    let target = target::of_fields(snapshot, caller, names, wanted)?;
    if let Some(asked) = checked
        && asked != target.capability
    {
        let remedy = format!("{} generates {}, not {asked}", target.asked, target.capability);
        return Err(ApiError::invalid("capability", &remedy));
    }
    let operation = match operation.as_deref() {
        // What only /v1 asks for is no word of this request.
        Some("completion" | "response") => None,
        Some(word) => Operation::of(target.capability, word),
        None => Operation::of(target.capability, mapped("operation").unwrap_or("generate"))
            .or_else(|| Operation::of(target.capability, "generate")),
    };
    let Some(operation) = operation else {
        if target.capability == Capability::Video {
            return Err(ApiError::unsupported("video"));
        }
        let words = if target.capability == Capability::Image { "generate or edit" } else { "generate" };
        let remedy = format!("must be {words} for {}", target.capability);
        return Err(ApiError::invalid("operation", &remedy));
    };
    if stream && operation != Operation::Chat {
        return Err(ApiError::unsupported("stream"));
    }
    let draft = Draft {
        dialect: Dialect::Forebay,
        operation,
        input,
        files,
        place: Place::Input,
        stream,
        thinking,
        region,
    };
    let asked = draft.finish(target, snapshot, caller)?;
    Ok(Asked { task_type, metadata, deadline, idempotency, include_usage: true, ..asked })
}

/// Reads a body of one of the `/v1` endpoints, which is called `endpoint`.
pub(crate) fn read_openai(
    endpoint: &str,
    operation: Operation,
    body: RequestBody,
    headers: &HeaderMap,
    snapshot: &Snapshot,
    caller: &Caller,
) -> Result<Asked, ApiError> {
    let RequestBody { fields: mut body, files, place } = body;
    let idempotency = idempotency::key_and_hash(headers, endpoint, &body, &files)?;
    let model = text(&mut body, "model")?
        .ok_or_else(|| ApiError::invalid("model", "is missing; GET /v1/models lists what may be asked"))?;
    let streams = matches!(operation, Operation::Chat | Operation::Completion | Operation::Responses);
    let stream = if streams { flag(&mut body, "stream")? } else { false };
    let include_usage = if streams { include_usage(body.shift_remove("stream_options"))? } else { false };
    if !streams && body.get("stream").is_some_and(|value| value == "false") {
        body.shift_remove("stream");
    }
    let target = target::either(snapshot, caller, &model)?;
    if target.capability != operation.capability() {
        let remedy = format!(
            "{model} generates {}; this endpoint needs one that generates {}",
            target.capability,
            operation.capability()
        );
        return Err(ApiError::invalid("model", &remedy));
    }
    // A file that this endpoint does not know would go nowhere.
    let known: &[&str] = match operation {
        Operation::ImageEdit => &["image", "mask"],
        Operation::Transcription => &["file"],
        _ => &[],
    };
    if let Some(file) = files.iter().find(|file| !known.contains(&file.name.as_str())) {
        return Err(ApiError::invalid(&file.name, "is not a file of this endpoint"));
    }
    let draft = Draft {
        dialect: Dialect::OpenAi,
        operation,
        input: body,
        files,
        place,
        stream,
        thinking: false,
        region: None,
    };
    let asked = draft.finish(target, snapshot, caller)?;
    Ok(Asked { include_usage, idempotency, ..asked })
}

/// A request whose surface has been read.
struct Draft {
    dialect: Dialect,
    operation: Operation,
    input: Map<String, Value>,
    files: Vec<FilePart>,
    place: Place,
    stream: bool,
    thinking: bool,
    region: Option<String>,
}

impl Draft {
    /// Checks what the operation is asked.
    fn finish(self, target: Target, snapshot: &Snapshot, caller: &Caller) -> Result<Asked, ApiError> {
        let Self { dialect, operation, mut input, files, place, stream, thinking, region } = self;
        let checked = input::check(operation, &mut input, files, place, target.max_output)?;
        let needs = Needs { stream, thinking, ..checked.needs };
        let region = region.or_else(|| caller.region.clone()).or(target.region);
        let prefer =
            target.deep_thinking_model.filter(|_| thinking).and_then(|name| snapshot.model_id(&name));
        Ok(Asked {
            dialect,
            route: target.route,
            asked: target.asked,
            alias: target.alias,
            operation,
            task_type: None,
            metadata: None,
            stream,
            thinking,
            needs,
            deadline: None,
            region: region.map(Into::into),
            prefer,
            include_usage: false,
            input: Arc::new(input),
            files: checked.files.into(),
            worst: checked.worst,
            prices: target.prices,
            min_content_chars: target.min_content_chars,
            idempotency: None,
        })
    }
}

fn include_usage(options: Option<Value>) -> Result<bool, ApiError> {
    match options {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => match options.get("include_usage") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(asked)) => Ok(*asked),
            Some(_) => Err(ApiError::invalid("stream_options.include_usage", "must be true or false")),
        },
        Some(_) => Err(ApiError::invalid("stream_options", "must be an object")),
    }
}

fn deadline(value: Option<Value>) -> Result<Option<Duration>, ApiError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(ms @ 1..=86_400_000) => Ok(Some(Duration::from_millis(ms))),
            _ => {
                let remedy = "must be a whole number of milliseconds, 1 to 86400000";
                Err(ApiError::invalid("deadline_ms", remedy))
            }
        },
    }
}

fn metadata(value: Option<Value>) -> Result<Option<String>, ApiError> {
    let wrong = || {
        ApiError::invalid(
            "metadata",
            "must be an object of at most 16 texts of at most 512 characters, with names of at most 64",
        )
    };
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) if map.len() <= 16 && map.iter().all(is_short_text) => {
            Ok(Some(Value::Object(map).to_string()))
        }
        Some(_) => Err(wrong()),
    }
}

fn is_short_text((name, value): (&String, &Value)) -> bool {
    name.chars().count() <= 64 && value.as_str().is_some_and(|text| text.chars().count() <= 512)
}

/// The caller whose token is in the headers.
pub(crate) fn caller_of(
    headers: &HeaderMap,
    snapshot: &Snapshot,
    now_ms: i64,
) -> Result<Arc<Caller>, ApiError> {
    let bearer = headers
        .get(axum::http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let token =
        bearer.or_else(|| headers.get("x-api-key")?.to_str().ok()).ok_or_else(ApiError::unauthorized)?;
    snapshot.caller_of_token(token, now_ms).ok_or_else(ApiError::unauthorized)
}
