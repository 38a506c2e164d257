//! OpenAI's Responses: whole answers and the events of streamed ones.

use forebay_engine::{Class, Failure, Usage};
use serde_json::{Map, Value};

use crate::chat::{AnswerContent, TELLTALES};
use crate::classify::classify_inside;
use crate::usage::read_usage;

/// How far a response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is whole.
    Completed,
    /// It ended before it was whole: the limit of tokens, or a content filter.
    Incomplete,
    /// It failed.
    Failed,
    /// Anything else: queued, under way, cancelled, or a word that is not known here.
    Other,
}

impl Status {
    /// It will not change any more, and there is an answer in it.
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete)
    }
}

/// A whole response, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeResponse {
    /// The upstream's id of it.
    pub id: Option<String>,
    /// How far it has come.
    pub status: Status,
    /// What is in its `output`.
    pub content: AnswerContent,
    /// The usage that it reports.
    pub usage: Option<Usage>,
    /// Why it failed; also when a content filter stopped it before it had said anything.
    pub failure: Option<Failure>,
}

impl WholeResponse {
    /// Understands a response object.
    pub fn read(response: &Value) -> Self {
        let status = match response.get("status").and_then(Value::as_str) {
            Some("completed") => Status::Completed,
            Some("incomplete") => Status::Incomplete,
            Some("failed") => Status::Failed,
            _ => Status::Other,
        };
        let content = content(response);
        let is_filtered = status == Status::Incomplete
            && content.bytes == 0
            && response
                .pointer("/incomplete_details/reason")
                .is_some_and(|reason| reason == "content_filter");
        let failure = classify_inside(response).or_else(|| {
            let (class, why) = match status {
                Status::Failed => (Class::Upstream, "a failed response that says no reason"),
                _ if is_filtered => (Class::Policy, "a content filter stopped the response"),
                _ => return None,
            };
            Some(Failure::new(class, why).with_status(200))
        });
        Self {
            id: response.get("id").and_then(Value::as_str).map(str::to_owned),
            status,
            content,
            usage: response.get("usage").and_then(read_usage),
            failure,
        }
    }
}

/// One event of a streamed response, understood.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseEvent {
    /// Bytes of content in it: text, a reasoning's summary, a refusal, or what calls a function. The
    /// events that repeat a whole text at its end have none, for it has been counted.
    pub content_bytes: usize,
    /// Nothing comes after it.
    pub is_end: bool,
    /// The upstream's id of the response.
    pub id: Option<String>,
    /// The usage that it reports.
    pub usage: Option<Usage>,
    /// Why the response failed. Such an event is never passed on: its words are the upstream's.
    pub failure: Option<Failure>,
}

impl ResponseEvent {
    /// Understands an event's data. Its `type` decides, not the `event` line beside it.
    pub fn read(event: &Value) -> Self {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "error" => Self { is_end: true, failure: Some(failure_of_error(event)), ..Self::default() },
            "response.completed" | "response.incomplete" | "response.failed" => {
                let whole = WholeResponse::read(event.get("response").unwrap_or(&Value::Null));
                let failure = whole.failure.or_else(|| {
                    let failed = || {
                        Failure::new(Class::Upstream, "a failed response that says no reason")
                            .with_status(200)
                    };
                    (kind == "response.failed").then(failed)
                });
                Self { content_bytes: 0, is_end: true, id: whole.id, usage: whole.usage, failure }
            }
            _ => Self {
                content_bytes: delta_bytes(kind, event),
                id: event.pointer("/response/id").and_then(Value::as_str).map(str::to_owned),
                ..Self::default()
            },
        }
    }

    /// There is content in it.
    pub const fn has_content(&self) -> bool {
        self.content_bytes > 0
    }
}

/// `{"type": "error", "code", "message"}`, flat or with an object of its own; a `code` may be null.
fn failure_of_error(event: &Value) -> Failure {
    classify_inside(event).unwrap_or_else(|| {
        let message = event.get("message").and_then(Value::as_str).unwrap_or("an error that says nothing");
        Failure::new(Class::Upstream, crate::classify::short(message)).with_status(200)
    })
}

fn delta_bytes(kind: &str, event: &Value) -> usize {
    match kind {
        "response.output_text.delta"
        | "response.reasoning_summary_text.delta"
        | "response.reasoning_text.delta"
        | "response.refusal.delta"
        | "response.function_call_arguments.delta"
        | "response.custom_tool_call_input.delta"
        | "response.audio.delta"
        | "response.audio.transcript.delta" => event.get("delta").and_then(Value::as_str).map_or(0, str::len),
        // A call without arguments has no delta: its name is what was written.
        "response.output_item.added" => {
            event.get("item").filter(|item| is_call(item)).map_or(0, |item| text_len(item, "name").max(1))
        }
        _ => 0,
    }
}

/// Of a whole response's `output`.
fn content(response: &Value) -> AnswerContent {
    let mut text_bytes = 0;
    let mut text_chars = 0;
    let mut other_bytes = 0;
    for item in items(response, "output") {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for part in items(item, "content") {
                    if let Some(text) = part.get("text").and_then(Value::as_str) {
                        text_bytes += text.len();
                        text_chars += text.chars().count();
                    }
                    other_bytes += text_len(part, "refusal");
                }
            }
            Some("reasoning") => {
                let parts = items(item, "summary").iter().chain(items(item, "content"));
                other_bytes += parts.map(|part| text_len(part, "text")).sum::<usize>();
            }
            _ if is_call(item) => {
                let written = ["name", "arguments", "input"].map(|name| text_len(item, name));
                other_bytes += written.iter().sum::<usize>().max(1);
            }
            // A picture, say.
            _ => other_bytes += text_len(item, "result"),
        }
    }
    AnswerContent { bytes: text_bytes + other_bytes, text_chars: (other_bytes == 0).then_some(text_chars) }
}

/// The model asks for something to be done, by the caller or at the upstream.
fn is_call(item: &Value) -> bool {
    item.get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("_call") && kind != "image_generation_call")
}

fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text_len(value: &Value, name: &str) -> usize {
    value.get(name).and_then(Value::as_str).map_or(0, str::len)
}

/// Makes a response, or an event with one in it, ours: our id, the alias that the caller used, and
/// nothing that names the upstream. The ids of its items stay, for later events refer to them.
pub fn disguise_response(answer: &mut Map<String, Value>, id: &str, alias: &str) {
    if let Some(Value::Object(response)) = answer.get_mut("response") {
        disguise_response(response, id, alias);
    }
    for name in TELLTALES {
        answer.shift_remove(name);
    }
    for (name, ours) in [("id", id), ("response_id", id), ("model", alias)] {
        if let Some(value) = answer.get_mut(name) {
            *value = Value::String(ours.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole(output: &Value) -> AnswerContent {
        WholeResponse::read(&json!({"status": "completed", "output": output})).content
    }

    #[test]
    fn what_counts_as_content_of_a_whole_response() {
        let message = |part: Value| json!([{"type": "message", "role": "assistant", "content": [part]}]);
        let text = whole(&message(json!({"type": "output_text", "text": "hé", "annotations": []})));
        assert_eq!(text, AnswerContent { bytes: 3, text_chars: Some(2) });
        let refusal = whole(&message(json!({"type": "refusal", "refusal": "no"})));
        assert_eq!(refusal, AnswerContent { bytes: 2, text_chars: None });
        let call = whole(&json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]));
        assert_eq!(call, AnswerContent { bytes: 3, text_chars: None });
        let summary =
            whole(&json!([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]));
        assert_eq!(summary, AnswerContent { bytes: 2, text_chars: None });
        let picture = whole(&json!([{"type": "image_generation_call", "result": "AAAA"}]));
        assert!(picture.bytes > 0);
        for nothing in [
            json!([]),
            json!(null),
            message(json!({"type": "output_text", "text": ""})),
            json!([{"type": "reasoning", "summary": [], "encrypted_content": "xyz"}]),
            json!([{"type": "image_generation_call", "result": null}]),
        ] {
            assert_eq!(whole(&nothing), AnswerContent { bytes: 0, text_chars: Some(0) }, "{nothing}");
        }
    }

    #[test]
    fn a_whole_response_has_its_id_status_usage_and_no_failure() {
        let read = WholeResponse::read(&json!({
            "id": "resp_1", "object": "response", "status": "completed", "error": null,
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
            "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}}));
        assert_eq!((read.id.as_deref(), read.status), (Some("resp_1"), Status::Completed));
        assert!(read.status.is_answer());
        assert_eq!(read.usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((9, 2)));
        assert_eq!(read.failure, None);
    }

    #[test]
    fn a_failed_response_has_the_class_of_its_error() {
        let class = |response| WholeResponse::read(&response).failure.map(|failure| failure.class);
        let failed = |error: Value| json!({"id": "r", "status": "failed", "error": error, "output": []});
        let limited = json!({"code": "rate_limit_exceeded", "message": "later"});
        assert_eq!(class(failed(limited)), Some(Class::RateLimited));
        assert_eq!(class(failed(json!({"code": "server_error", "message": "x"}))), Some(Class::Upstream));
        assert_eq!(class(failed(Value::Null)), Some(Class::Upstream));
        let incomplete = |reason: &str, output: Value| json!({"status": "incomplete", "incomplete_details": {"reason": reason}, "output": output});
        assert_eq!(class(incomplete("max_output_tokens", json!([]))), None);
        assert_eq!(class(incomplete("content_filter", json!([]))), Some(Class::Policy));
        let said = json!([{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]);
        assert_eq!(class(incomplete("content_filter", said)), None, "what was said is the answer");
    }

    #[test]
    fn events_are_content_or_not() {
        let bytes = |event: Value| ResponseEvent::read(&event).content_bytes;
        for kind in [
            "response.output_text.delta",
            "response.reasoning_summary_text.delta",
            "response.refusal.delta",
            "response.function_call_arguments.delta",
        ] {
            assert_eq!(bytes(json!({"type": kind, "item_id": "i", "delta": "hé"})), 3, "{kind}");
            assert_eq!(bytes(json!({"type": kind, "item_id": "i", "delta": ""})), 0, "{kind}");
        }
        let call = json!({"type": "function_call", "name": "f", "arguments": ""});
        assert_eq!(bytes(json!({"type": "response.output_item.added", "item": call})), 1);
        for event in [
            json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
            json!({"type": "response.output_item.added", "item": {"type": "message", "content": []}}),
            json!({"type": "response.output_text.done", "text": "whole"}),
            json!({"type": "response.something.new", "delta": "x"}),
            json!({}),
        ] {
            let read = ResponseEvent::read(&event);
            assert!(!read.has_content() && !read.is_end && read.failure.is_none(), "{event}");
        }
    }

    #[test]
    fn the_last_event_has_usage_or_a_failure() {
        let response = json!({"id": "resp_1", "status": "completed", "output": [],
            "usage": {"input_tokens": 9, "output_tokens": 2}});
        let end = ResponseEvent::read(&json!({"type": "response.completed", "response": response}));
        assert!(end.is_end && end.failure.is_none());
        assert_eq!(end.id.as_deref(), Some("resp_1"));
        assert_eq!(end.usage.map(|usage| usage.output_tokens), Some(2));

        let class = |event: Value| {
            let read = ResponseEvent::read(&event);
            assert!(read.is_end, "{event}");
            read.failure.map(|failure| failure.class)
        };
        let cut = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
        assert_eq!(class(json!({"type": "response.incomplete", "response": cut})), None);
        let failed = json!({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "x"}});
        let event = json!({"type": "response.failed", "response": failed});
        assert_eq!(class(event), Some(Class::RateLimited));
        assert_eq!(class(json!({"type": "response.failed"})), Some(Class::Upstream));
        let flat = json!({"type": "error", "code": "context_length_exceeded", "message": "x", "param": null});
        assert_eq!(class(flat), Some(Class::Request));
        let nested = json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}});
        assert_eq!(class(nested), Some(Class::Upstream));
        assert_eq!(class(json!({"type": "error", "code": null, "message": "x"})), Some(Class::Upstream));
        assert_eq!(class(json!({"type": "error"})), Some(Class::Upstream));
    }

    #[test]
    fn nothing_that_names_the_upstream_stays() {
        let theirs = json!({"id": "resp_9", "model": "gpt-x-0613", "service_tier": "default", "object": "response",
            "output": [{"type": "message", "id": "msg_1"}]});
        let ours = json!({"id": "task-1", "model": "main_text", "object": "response",
            "output": [{"type": "message", "id": "msg_1"}]});
        let mut whole = theirs.clone();
        disguise_response(whole.as_object_mut().expect("an object"), "task-1", "main_text");
        assert_eq!(whole, ours);
        let mut event = json!({"type": "response.created", "response": theirs, "provider": "p"});
        disguise_response(event.as_object_mut().expect("an object"), "task-1", "main_text");
        assert_eq!(event, json!({"type": "response.created", "response": ours}));
        let mut delta = json!({"type": "response.output_text.delta", "response_id": "resp_9", "delta": "x"});
        disguise_response(delta.as_object_mut().expect("an object"), "task-1", "main_text");
        assert_eq!(delta["response_id"], "task-1");
        assert_eq!(delta.get("id"), None, "nothing is added");
    }
}
