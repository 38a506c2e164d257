//! What an error body says, whatever its dialect.

use serde_json::Value;

use super::codes;

/// An error, as its body tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// Its codes, from the most to the least exact, in lower case.
    pub codes: Vec<String>,
    /// Its message.
    pub message: String,
    /// The parameter that it blames.
    pub param: Option<String>,
}

impl ErrorBody {
    /// Finds the error in an answer that came with a 200; empty when there is none.
    ///
    /// Understood: OpenAI `{"error": {"code", "type", "message", "param"}}`, an `error` that is a
    /// text, Anthropic `{"type": "error", "error": {"type"}}`, Google `{"error": {"code": 429,
    /// "status", "details": [{"reason"}]}}` (also inside a list) and its blocked prompts, DashScope,
    /// SiliconFlow and Volcengine's speech `{"code", "message"}`, and DashScope's failed tasks
    /// `{"output": {"code", "message"}}`. A code that means success is no error, and neither is a code
    /// that nobody knows beside a result.
    pub fn read(body: &Value) -> Self {
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        match body.get("error") {
            Some(Value::String(message)) => return Self { message: message.clone(), ..Self::default() },
            Some(error) if error.is_object() => return Self::nested(error),
            _ => {}
        }
        if let Some(reason) =
            body.get("promptFeedback").and_then(|prompt| prompt.get("blockReason")).and_then(code_text)
        {
            let message = format!("the prompt was blocked: {reason}");
            return Self { codes: vec![reason], message, param: None };
        }
        let top = Self::beside(body);
        if top.is_error() {
            return top;
        }
        body.get("output").map(Self::beside).unwrap_or_default()
    }

    /// Finds the error in an answer whose status says that it is one: also a bare text or `message`,
    /// FastAPI's `detail`, and the envelope of Volcengine's management API.
    pub(super) fn read_refusal(body: &Value) -> Self {
        let found = Self::read(body);
        if found.is_error() {
            return found;
        }
        if let Some(message) = body.as_str().or_else(|| body.get("message")?.as_str()) {
            let codes = body.get("code").and_then(code_text).into_iter().collect();
            return Self { codes, message: message.to_owned(), param: None };
        }
        if let Some(error) = body.pointer("/ResponseMetadata/Error") {
            let text = |name| error.get(name).and_then(Value::as_str).unwrap_or_default();
            return Self {
                codes: vec![text("Code").to_lowercase()],
                message: text("Message").into(),
                param: None,
            };
        }
        match body.get("detail") {
            Some(Value::String(message)) => Self { message: message.clone(), ..Self::default() },
            Some(Value::Array(list)) => list.first().map(Self::of_validation).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    /// There is an error in it.
    pub fn is_error(&self) -> bool {
        !self.codes.is_empty() || !self.message.is_empty()
    }

    /// An error in an object of its own.
    fn nested(error: &Value) -> Self {
        let details = error.get("details").and_then(Value::as_array);
        let details = || details.into_iter().flatten();
        let inner = error.pointer("/innererror/code");
        let named = ["code", "status", "type"].into_iter().filter_map(|name| error.get(name));
        let codes: Vec<_> = details()
            .filter_map(|detail| detail.get("reason"))
            .chain(named)
            .chain(inner)
            .filter_map(code_text)
            .filter(|code| !codes::is_success(code))
            .collect();
        let message = text(error, "message").unwrap_or_default();
        if codes.is_empty() && codes::is_success(&message.to_lowercase()) {
            return Self::default();
        }
        let violated = || details().find_map(|detail| detail.pointer("/fieldViolations/0/field")?.as_str());
        let param = text(error, "param")
            .or_else(|| violated().map(str::to_owned))
            .or_else(|| quoted_parameter(&message));
        Self { codes, message, param }
    }

    /// An error whose `code` and `message` stand beside the answer's other fields.
    fn beside(body: &Value) -> Self {
        let (Some(code), Some(message)) = (body.get("code").and_then(code_text), text(body, "message"))
        else {
            return Self::default();
        };
        let is_known = codes::exact(&code).is_some() || codes::broad(&code).is_some();
        if codes::is_success(&code) || (!is_known && has_result(body)) {
            return Self::default();
        }
        let param = text(body, "param").or_else(|| quoted_parameter(&message));
        Self { codes: vec![code], message, param }
    }

    /// `{"loc": ["body", "n"], "msg": "…"}`, as FastAPI answers 422.
    fn of_validation(item: &Value) -> Self {
        let place = item.get("loc").and_then(Value::as_array).and_then(|place| place.last()?.as_str());
        let message = text(item, "msg").unwrap_or_default();
        Self { codes: Vec::new(), message, param: place.map(str::to_owned) }
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn code_text(code: &Value) -> Option<String> {
    match code {
        Value::String(text) if !text.is_empty() => Some(text.to_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Something that only an answer has.
fn has_result(body: &Value) -> bool {
    ["choices", "data", "results", "output", "embeddings", "audio", "text"].into_iter().any(|name| match body
        .get(name)
    {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    })
}

/// Ark names the parameter in its message only: "The parameter `n` specified …".
fn quoted_parameter(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("parameter `")?;
    let (name, _) = rest.split_once('`')?;
    (!name.is_empty() && name.len() <= 64).then(|| name.to_owned())
}
