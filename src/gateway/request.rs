//! A caller's request, read and checked: field by field, and what is wrong is named.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use forebay_engine::policy::Capability;
use forebay_engine::task::Route;
use forebay_engine::{GroupKey, Needs};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::{ApiError, Dialect};
use crate::catalog::{Caller, Snapshot};
use crate::ledger::Prices;

/// Output tokens that are held for where neither the request nor the model says how many.
const DEFAULT_MAX_TOKENS: u64 = 4_096;
/// The longest Idempotency-Key, in characters.
const LONGEST_KEY: usize = 255;

/// A request that may be run.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) dialect: Dialect,
    pub(crate) route: Route,
    /// The pool's key or the model's name.
    pub(crate) asked: String,
    /// The name that the caller used.
    pub(crate) alias: String,
    pub(crate) capability: Capability,
    pub(crate) operation: String,
    pub(crate) task_type: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) stream: bool,
    pub(crate) needs: Needs,
    pub(crate) deadline: Option<Duration>,
    /// The caller wants usage in its stream.
    pub(crate) include_usage: bool,
    /// The fields that go upstream.
    pub(crate) input: Map<String, Value>,
    pub(crate) answers: u32,
    pub(crate) max_tokens: u64,
    pub(crate) prices: Prices,
    pub(crate) min_content_chars: usize,
    /// The Idempotency-Key and the hash of what was asked with it.
    pub(crate) idempotency: Option<(String, String)>,
}

impl Asked {
    /// The pool's key, where a pool is asked.
    pub(crate) fn pool(&self) -> Option<&GroupKey> {
        match &self.route {
            Route::Pool(key) => Some(key),
            Route::Model(_) => None,
        }
    }

    /// What the task keeps of the request: its shape, no content.
    pub(crate) fn summary(&self) -> String {
        let messages: Vec<Value> = self
            .input
            .get("messages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|message| {
                let content = &message["content"];
                let length = content.as_str().map_or_else(|| content.to_string().len(), str::len);
                json!({"role": message["role"], "bytes": length})
            })
            .collect();
        let parameters: Map<String, Value> = self
            .input
            .iter()
            .filter(|(_, value)| value.is_number() || value.is_boolean())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        json!({"messages": messages, "parameters": parameters}).to_string()
    }
}

/// Reads a body of POST /api/generate.
pub(crate) fn read_generate(
    mut body: Map<String, Value>,
    headers: &HeaderMap,
    snapshot: &Snapshot,
    caller: &Caller,
) -> Result<Asked, ApiError> {
    let idempotency = idempotency(headers, "/api/generate", &body)?;
    let group = text(&mut body, "model_group")?;
    let model_id = text(&mut body, "ai_model_id")?;
    let model = text(&mut body, "model")?;
    let task_type = text(&mut body, "task_type")?;
    let asked_capability = text(&mut body, "capability")?;
    let operation = text(&mut body, "operation")?;
    let _region = text(&mut body, "region")?;
    let stream = flag(&mut body, "stream")?;
    let thinking = flag(&mut body, "thinking")?;
    if flag(&mut body, "async")? {
        return Err(ApiError::unsupported("async"));
    }
    for later in ["cache", "webhook"] {
        if body.shift_remove(later).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false))) {
            return Err(ApiError::unsupported(later));
        }
    }
    let deadline = match body.shift_remove("deadline_ms") {
        None | Some(Value::Null) => None,
        Some(value) => match value.as_u64() {
            Some(ms @ 1..=86_400_000) => Some(Duration::from_millis(ms)),
            _ => {
                return Err(ApiError::invalid(
                    "deadline_ms",
                    "must be a whole number of milliseconds, 1 to 86400000",
                ));
            }
        },
    };
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

    let wanted = match (&group, &model_id, &model) {
        (Some(_) | None, _, Some(_)) if group.is_some() || model_id.is_some() => {
            return Err(ApiError::invalid(
                "model",
                "stands instead of model_group and ai_model_id, not beside them",
            ));
        }
        _ => group.as_deref().or(model.as_deref()),
    };
    let target = match (wanted, model_id.as_deref()) {
        (Some(name), None) if group.is_some() => find_pool(snapshot, caller, name)
            .map_err(|error| ApiError { param: Some("model_group".into()), ..error })?,
        (Some(name), None) => find(snapshot, caller, name)?,
        (Some(name), Some(model)) => match find_pool(snapshot, caller, name) {
            Ok(found) => found,
            Err(_) => find_model(snapshot, caller, model)?,
        },
        (None, Some(model)) => find_model(snapshot, caller, model)
            .map_err(|error| ApiError { param: Some("ai_model_id".into()), ..error })?,
        (None, None) => default_pool(snapshot, caller, asked_capability.as_deref())?,
    };
    if let Some(asked) = asked_capability
        && asked != target.capability.as_str()
    {
        let remedy = format!("{} generates {}, not {asked}", target.asked, target.capability);
        return Err(ApiError::invalid("capability", &remedy));
    }
    let mut asked = target.asked(Dialect::Forebay, input, stream, "input.")?;
    asked.needs.thinking = thinking;
    asked.include_usage = true;
    if let Some(operation) = operation {
        if operation != "generate" {
            return Err(ApiError::invalid("operation", "text has no operation but generate"));
        }
        asked.operation = operation;
    }
    Ok(Asked { task_type, metadata, deadline, idempotency, ..asked })
}

/// Reads a body of POST /v1/chat/completions.
pub(crate) fn read_chat(
    mut body: Map<String, Value>,
    headers: &HeaderMap,
    snapshot: &Snapshot,
    caller: &Caller,
) -> Result<Asked, ApiError> {
    let idempotency = idempotency(headers, "/v1/chat/completions", &body)?;
    let model = text(&mut body, "model")?
        .ok_or_else(|| ApiError::invalid("model", "is missing; GET /v1/models lists what may be asked"))?;
    let stream = flag(&mut body, "stream")?;
    let include_usage = match body.shift_remove("stream_options") {
        None | Some(Value::Null) => false,
        Some(Value::Object(options)) => match options.get("include_usage") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(asked)) => *asked,
            Some(_) => {
                return Err(ApiError::invalid("stream_options.include_usage", "must be true or false"));
            }
        },
        Some(_) => return Err(ApiError::invalid("stream_options", "must be an object")),
    };
    let target = find(snapshot, caller, &model)?;
    let asked = target.asked(Dialect::OpenAi, body, stream, "")?;
    Ok(Asked { include_usage, idempotency, ..asked })
}

/// Whom a request goes to.
struct Target {
    route: Route,
    asked: String,
    alias: String,
    capability: Capability,
    prices: Prices,
    min_content_chars: usize,
    max_output: Option<u64>,
}

fn find(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    find_pool(snapshot, caller, name).or_else(|_| find_model(snapshot, caller, name)).map_err(|_| ApiError {
        param: Some("model".into()),
        ..ApiError::not_found(format!("there is no pool or model '{name}'"))
    })
}

fn find_pool(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    let missing = || ApiError::not_found(format!("there is no pool '{name}'"));
    let config = snapshot.pool_named(name).ok_or_else(missing)?;
    if !caller.may_use(&config.key) {
        return Err(missing());
    }
    Ok(Target {
        route: Route::Pool(config.key.clone()),
        asked: config.key.to_string(),
        alias: name.to_owned(),
        capability: config.capability,
        prices: config.prices.clone(),
        min_content_chars: config.min_content_chars,
        max_output: config.max_output,
    })
}

/// A model may be asked for by callers who may use its pool, or any pool.
fn find_model(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    let missing = || ApiError::not_found(format!("there is no model '{name}'"));
    let model = snapshot.model_named(name).ok_or_else(missing)?;
    let allowed = match &model.pool {
        Some(pool) => caller.may_use(pool),
        None => caller.pools.is_none(),
    };
    if !allowed {
        return Err(missing());
    }
    Ok(Target {
        route: Route::Model(model.id.clone()),
        asked: model.name.to_string(),
        alias: name.to_owned(),
        capability: model.capability,
        prices: model.price.clone(),
        min_content_chars: 1,
        max_output: model.max_output,
    })
}

fn default_pool(snapshot: &Snapshot, caller: &Caller, capability: Option<&str>) -> Result<Target, ApiError> {
    let capability = capability.unwrap_or("text").parse::<Capability>();
    let capability = capability.map_err(|wrong| ApiError::invalid("capability", &wrong.to_string()))?;
    let key = snapshot.settings.default_pool.get(capability.as_str()).ok_or_else(|| {
        ApiError::invalid("model_group", "is missing, and no default pool is set; name a pool")
    })?;
    find_pool(snapshot, caller, key)
}

impl Target {
    fn asked(
        self,
        dialect: Dialect,
        input: Map<String, Value>,
        stream: bool,
        place: &str,
    ) -> Result<Asked, ApiError> {
        if self.capability != Capability::Text {
            return Err(ApiError::unsupported(self.capability.as_str()));
        }
        let field = |name: &str| format!("{place}{name}");
        check_messages(input.get("messages"), &field("messages"))?;
        let answers = whole_number(&input, "n", 1..=128, place)?.unwrap_or(1) as u32;
        let asked_tokens = match whole_number(&input, "max_completion_tokens", 1..=10_000_000, place)? {
            Some(tokens) => Some(tokens),
            None => whole_number(&input, "max_tokens", 1..=10_000_000, place)?,
        };
        let needs = Needs {
            stream,
            tools: input.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()),
            structured: input.get("response_format").is_some_and(|format| format["type"] == "json_schema"),
            thinking: false,
            vision: has_images(&input),
        };
        Ok(Asked {
            dialect,
            route: self.route,
            asked: self.asked,
            alias: self.alias,
            capability: self.capability,
            operation: "generate".into(),
            task_type: None,
            metadata: None,
            stream,
            needs,
            deadline: None,
            include_usage: false,
            input,
            answers,
            max_tokens: asked_tokens.or(self.max_output).unwrap_or(DEFAULT_MAX_TOKENS),
            prices: self.prices,
            min_content_chars: self.min_content_chars,
            idempotency: None,
        })
    }
}

fn check_messages(messages: Option<&Value>, field: &str) -> Result<(), ApiError> {
    let Some(messages) = messages else {
        return Err(ApiError::invalid(field, "is missing; send at least one message"));
    };
    let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
        return Err(ApiError::invalid(field, "must be a list of at least one message"));
    };
    for (place, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(Value::is_string) {
            let field = format!("{field}[{place}].role");
            return Err(ApiError::invalid(&field, "must be a text such as user, assistant or system"));
        }
    }
    Ok(())
}

fn has_images(input: &Map<String, Value>) -> bool {
    let messages = input.get("messages").and_then(Value::as_array).into_iter().flatten();
    messages
        .filter_map(|message| message.get("content")?.as_array())
        .flatten()
        .any(|part| part["type"] == "image_url")
}

fn whole_number(
    input: &Map<String, Value>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    place: &str,
) -> Result<Option<u64>, ApiError> {
    match input.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let remedy = format!("must be a whole number between {} and {}", range.start(), range.end());
                Err(ApiError::invalid(&format!("{place}{name}"), &remedy))
            }
        },
    }
}

fn text(body: &mut Map<String, Value>, name: &str) -> Result<Option<String>, ApiError> {
    match body.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= 512 => Ok(Some(text)),
        Some(_) => Err(ApiError::invalid(name, "must be a text of 1 to 512 characters")),
    }
}

fn flag(body: &mut Map<String, Value>, name: &str) -> Result<bool, ApiError> {
    match body.shift_remove(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(ApiError::invalid(name, "must be true or false")),
    }
}

fn metadata(value: Option<Value>) -> Result<Option<String>, ApiError> {
    let wrong =
        || ApiError::invalid("metadata", "must be an object of at most 16 texts of at most 512 characters");
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) if map.len() <= 16 && map.iter().all(is_short_text) => {
            Ok(Some(Value::Object(map).to_string()))
        }
        Some(_) => Err(wrong()),
    }
}

fn is_short_text((name, value): (&String, &Value)) -> bool {
    name.len() <= 64 && value.as_str().is_some_and(|text| text.len() <= 512)
}

fn idempotency(
    headers: &HeaderMap,
    endpoint: &str,
    body: &Map<String, Value>,
) -> Result<Option<(String, String)>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=LONGEST_KEY).contains(&key.chars().count()));
    let key =
        key.ok_or_else(|| ApiError::invalid("Idempotency-Key", "must be 1 to 255 visible characters"))?;
    let mut hash = Sha256::new();
    hash.update(endpoint);
    hash_fields(&mut hash, body);
    Ok(Some((key.to_owned(), format!("{:x}", hash.finalize()))))
}

/// Hashes parsed fields, not bytes: white space and the order of fields make no other request.
fn hash_fields(hash: &mut Sha256, fields: &Map<String, Value>) {
    let mut names: Vec<_> = fields.keys().collect();
    names.sort_unstable();
    hash.update(b"{");
    for name in names {
        hash.update(Value::String(name.clone()).to_string());
        hash_value(hash, &fields[name]);
    }
    hash.update(b"}");
}

fn hash_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => hash_fields(hash, fields),
        Value::Array(list) => {
            hash.update(b"[");
            list.iter().for_each(|value| hash_value(hash, value));
            hash.update(b"]");
        }
        simple => hash.update(format!("{simple},")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(body: &Value) -> String {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", "k".parse().expect("a header"));
        let fields = body.as_object().expect("an object");
        idempotency(&headers, "/x", fields).expect("a key").expect("a hash").1
    }

    #[test]
    fn the_order_of_fields_makes_no_other_request_and_any_value_does() {
        let one = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 1});
        let same = json!({"n": 1, "messages": [{"content": "hi", "role": "user"}], "model": "m"});
        assert_eq!(hash(&one), hash(&same));
        for other in [
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 2}),
            json!({"model": "m", "messages": [{"role": "user", "content": "ho"}], "n": 1}),
            json!({"model": "m", "messages": [[{"role": "user", "content": "hi"}]], "n": 1}),
        ] {
            assert_ne!(hash(&one), hash(&other));
        }
    }
}
