//! Chat completions in OpenAI's shape: what of an answer is content, and what of it names the upstream.

use forebay_engine::Usage;
use serde_json::{Map, Value};

use crate::usage::read_usage;

/// Fields of an answer that would tell who served it.
pub(crate) const TELLTALES: [&str; 6] =
    ["system_fingerprint", "provider", "service_tier", "x_groq", "request_id", "provider_specific_fields"];

/// One chunk of a streamed answer, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Text, reasoning, a refusal, a tool call or audio is in it.
    pub has_content: bool,
    /// Bytes of content in it, for an estimate of tokens.
    pub content_bytes: usize,
    /// A choice has finished.
    pub finished: bool,
    /// The usage that it reports.
    pub usage: Option<Usage>,
    /// There are no choices in it.
    pub is_empty: bool,
}

impl Chunk {
    /// Understands a chunk.
    pub fn read(chunk: &Value) -> Self {
        let choices = chunk.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let deltas = choices.iter().filter_map(|choice| choice.get("delta"));
        let texts = choices.iter().filter_map(|choice| choice.get("text")?.as_str()).map(str::len);
        let content_bytes = deltas.map(content_bytes).sum::<usize>() + texts.sum::<usize>();
        Self {
            has_content: content_bytes > 0,
            content_bytes,
            finished: choices.iter().any(|choice| choice.get("finish_reason").is_some_and(Value::is_string)),
            usage: chunk.get("usage").and_then(read_usage),
            is_empty: choices.is_empty(),
        }
    }
}

/// Bytes of content in a whole answer's message or a stream's delta; 0 when there is none.
fn content_bytes(message: &Value) -> usize {
    let text = |name: &str| message.get(name).and_then(Value::as_str).map_or(0, str::len);
    let parts = message
        .get("content")
        .and_then(Value::as_array)
        .map_or(0, |parts| parts.iter().filter_map(|part| part.get("text")?.as_str()).map(str::len).sum());
    let whole = |name: &str| message.get(name).filter(|value| is_filled(value)).map_or(0, words);
    text("content")
        + parts
        + ["reasoning_content", "reasoning", "refusal"].into_iter().map(text).sum::<usize>()
        + ["tool_calls", "function_call", "audio"].into_iter().map(whole).sum::<usize>()
}

/// Bytes of the texts within a value, at least one: what a model wrote of it, without its JSON.
fn words(value: &Value) -> usize {
    fn texts(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(texts).sum(),
            Value::Object(map) => map
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "id" | "type"))
                .map(|(_, value)| texts(value))
                .sum(),
            _ => 0,
        }
    }
    texts(value).max(1)
}

fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}

/// Content of a whole answer: bytes in all, and the characters of plain text where there is nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerContent {
    /// Bytes of all content; 0 = the answer answers nothing.
    pub bytes: usize,
    /// Characters of text, where text is all there is; tool calls, refusals and reasoning have no minimum.
    pub text_chars: Option<usize>,
}

impl AnswerContent {
    /// Looks at all choices.
    pub fn read(answer: &Value) -> Self {
        let choices = answer.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let messages = || choices.iter().filter_map(|choice| choice.get("message"));
        // Legacy completions have their text in the choice itself.
        let legacy = || choices.iter().filter_map(|choice| choice.get("text")?.as_str());
        let plain = || messages().filter_map(|message| message.get("content")?.as_str()).chain(legacy());
        let bytes = messages().map(content_bytes).sum::<usize>() + legacy().map(str::len).sum::<usize>();
        let text_bytes: usize = plain().map(str::len).sum();
        let text_chars = (text_bytes == bytes).then(|| plain().map(|text| text.chars().count()).sum());
        Self { bytes, text_chars }
    }
}

/// Makes an answer, or a chunk of one, ours: our id, the alias that the caller used, and nothing that
/// names the upstream.
pub fn disguise(answer: &mut Map<String, Value>, id: &str, alias: &str) {
    answer.retain(|name, value| {
        match name.as_str() {
            "id" => *value = Value::String(id.into()),
            "model" => *value = Value::String(alias.into()),
            _ => return !is_telltale(name),
        }
        true
    });
    let choices = answer.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten();
    for choice in choices.filter_map(Value::as_object_mut) {
        choice.retain(|name, part| {
            if let ("message" | "delta", Value::Object(part)) = (name.as_str(), part) {
                part.retain(|name, _| name != "model" && !is_telltale(name));
            }
            name != "model" && !is_telltale(name)
        });
    }
}

/// A field that tells who wrote an answer: one of those that are known to, or an extension.
fn is_telltale(name: &str) -> bool {
    TELLTALES.contains(&name) || name.starts_with("x_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn has_content(delta: &Value) -> bool {
        Chunk::read(&json!({"choices": [{"delta": delta}]})).has_content
    }

    #[test]
    fn what_counts_as_content() {
        assert!(has_content(&json!({"content": "x"})));
        assert!(has_content(&json!({"reasoning_content": "hm"})));
        assert!(has_content(&json!({"refusal": "no"})));
        assert!(has_content(&json!({"tool_calls": [{"index": 0}]})));
        assert!(has_content(&json!({"audio": {"data": "AA=="}})));
        assert!(!has_content(&json!({"role": "assistant", "content": ""})));
        assert!(!has_content(&json!({"content": null, "tool_calls": []})));
    }

    #[test]
    fn s6_a_last_chunk_without_choices_carries_usage() {
        let chunk =
            Chunk::read(&json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}));
        assert!(chunk.is_empty && !chunk.has_content);
        assert_eq!(chunk.usage.map(|usage| usage.output_tokens), Some(2));
    }

    #[test]
    fn of_a_tool_call_only_its_words_are_counted() {
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        assert_eq!(Chunk::read(&json!({"choices": [{"delta": {"tool_calls": [call]}}]})).content_bytes, 3);
    }

    #[test]
    fn a_tool_call_alone_is_no_empty_answer() {
        let answer = json!({"choices": [{"message": {"content": null, "tool_calls": [{"id": "1"}]}}]});
        let content = AnswerContent::read(&answer);
        assert!(content.bytes > 0 && content.text_chars.is_none());
        let empty = AnswerContent::read(&json!({"choices": [{"message": {"content": ""}}]}));
        assert_eq!(empty, AnswerContent { bytes: 0, text_chars: Some(0) });
    }

    #[test]
    fn the_text_of_a_legacy_completion_is_its_content() {
        let answer = json!({"object": "text_completion", "choices": [{"text": "hé"}, {"text": ""}]});
        assert_eq!(AnswerContent::read(&answer), AnswerContent { bytes: 3, text_chars: Some(2) });
        let empty = AnswerContent::read(&json!({"choices": [{"text": ""}]}));
        assert_eq!(empty, AnswerContent { bytes: 0, text_chars: Some(0) });
    }

    #[test]
    fn nothing_that_names_the_upstream_stays() {
        let mut answer = json!({"id": "chatcmpl-9", "model": "gpt-x-0613", "system_fingerprint": "fp", "provider": "p",
            "service_tier": "t", "object": "chat.completion"});
        disguise(answer.as_object_mut().expect("an object"), "task-1", "main_text");
        assert_eq!(answer, json!({"id": "task-1", "model": "main_text", "object": "chat.completion"}));
        let mut nested = json!({"x_acme": 1, "choices": [{"index": 0, "model": "acme", "x_seed": 2,
            "message": {"content": "hi", "provider_specific_fields": {"acme": 1}}}]});
        disguise(nested.as_object_mut().expect("an object"), "", "");
        assert_eq!(nested, json!({"choices": [{"index": 0, "message": {"content": "hi"}}]}));
    }
}
