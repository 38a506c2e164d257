//! A streamed completion put together again: what a replay of it, and its task's page, show.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Puts chunks together.
#[derive(Debug, Default)]
pub struct Accumulator {
    choices: BTreeMap<u64, Choice>,
}

#[derive(Debug, Default)]
struct Choice {
    /// Of the older completions, which have no messages.
    text: Option<String>,
    texts: BTreeMap<&'static str, String>,
    tool_calls: BTreeMap<u64, ToolCall>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default)]
struct ToolCall {
    id: Option<Value>,
    name: String,
    arguments: String,
}

/// Parts of a message that are texts, and come in pieces.
const TEXTS: [&str; 4] = ["content", "reasoning_content", "reasoning", "refusal"];

impl Accumulator {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a chunk.
    pub fn add(&mut self, chunk: &Map<String, Value>) {
        let choices = chunk.get("choices").and_then(Value::as_array).into_iter().flatten();
        for part in choices {
            let index = part.get("index").and_then(Value::as_u64).unwrap_or(0);
            let choice = self.choices.entry(index).or_default();
            if let Some(reason) = part.get("finish_reason").and_then(Value::as_str) {
                choice.finish_reason = Some(reason.to_owned());
            }
            if let Some(text) = part.get("text").and_then(Value::as_str) {
                choice.text.get_or_insert_default().push_str(text);
            }
            let Some(delta) = part.get("delta") else { continue };
            for name in TEXTS {
                if let Some(text) = delta.get(name).and_then(Value::as_str) {
                    choice.texts.entry(name).or_default().push_str(text);
                }
            }
            for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                choice.add_call(call);
            }
        }
    }

    /// The `choices` of the whole answer.
    pub fn choices(&self) -> Value {
        self.choices.iter().map(|(index, choice)| choice.whole(*index)).collect()
    }
}

impl Choice {
    fn add_call(&mut self, call: &Value) {
        let index = call.get("index").and_then(Value::as_u64).unwrap_or(0);
        let known = self.tool_calls.entry(index).or_default();
        known.id = call.get("id").cloned().or_else(|| known.id.take());
        let function = |name: &str| call.get("function")?.get(name)?.as_str();
        known.name.push_str(function("name").unwrap_or_default());
        known.arguments.push_str(function("arguments").unwrap_or_default());
    }

    fn whole(&self, index: u64) -> Value {
        if let Some(text) = &self.text {
            return json!({"index": index, "text": text, "finish_reason": self.finish_reason});
        }
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert("content".into(), Value::Null);
        for (name, text) in self.texts.iter().filter(|(_, text)| !text.is_empty()) {
            message.insert((*name).into(), Value::String(text.clone()));
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.values().map(|call| {
                json!({"id": call.id, "type": "function",
                       "function": {"name": call.name, "arguments": call.arguments}})
            });
            message.insert("tool_calls".into(), calls.collect());
        }
        json!({"index": index, "message": message, "finish_reason": self.finish_reason})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_text_and_tool_calls_are_put_together_again() {
        let mut whole = Accumulator::new();
        let chunks = [
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "Hel"}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "lo"}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"a\""}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {}}),
        ];
        for chunk in &chunks {
            whole.add(chunk.as_object().expect("an object"));
        }
        let expected = json!([{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Hello",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}]);
        assert_eq!(whole.choices(), expected);
    }

    #[test]
    fn an_older_completion_is_a_text_again() {
        let mut whole = Accumulator::new();
        for (text, finish) in [("Hel", None), ("lo", Some("stop"))] {
            let chunk = json!({"choices": [{"index": 0, "text": text, "finish_reason": finish}]});
            whole.add(chunk.as_object().expect("an object"));
        }
        assert_eq!(whole.choices(), json!([{"index": 0, "text": "Hello", "finish_reason": "stop"}]));
    }
}
