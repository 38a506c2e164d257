//! What the gateway and the upstreams say to each other, so that neither has to know the other.

use bytes::Bytes;
use forebay_engine::stream::EventSource;
use forebay_engine::{Upstream, Usage};
use serde_json::{Map, Value};

/// What is asked of an upstream: a chat completion in OpenAI's shape.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The fields of the body but `model`, `stream` and `stream_options`, as JSON without its braces:
    /// written once, sent to whichever member is asked.
    pub fields: Bytes,
    /// Characters below which a text is no answer.
    pub min_content_chars: usize,
}

impl Ask {
    /// From a body's fields.
    pub fn new(input: &Map<String, Value>, min_content_chars: usize) -> Self {
        let json = serde_json::to_string(input).unwrap_or_default();
        let inner = json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap_or_default();
        Self { fields: Bytes::copy_from_slice(inner.as_bytes()), min_content_chars }
    }
}

/// One chunk of a streamed chat completion.
#[derive(Debug)]
pub struct ChatEvent {
    /// The chunk, as the upstream wrote it.
    pub chunk: Map<String, Value>,
    /// It carries usage and nothing else: passed on only if the caller asked for usage.
    pub usage_only: bool,
}

/// A streamed chat completion.
pub trait ChatEvents: EventSource<Event = ChatEvent> {
    /// The usage that was reported, or else an estimate from the bytes that went by.
    fn usage(&self, input_bytes: u64) -> Usage;

    /// The upstream's own id.
    fn provider_task_id(&self) -> Option<String>;
}

/// Whoever answers chat completions.
pub trait ChatUpstream: Upstream<Request = Ask, Answer = Map<String, Value>, Stream: ChatEvents> {}

impl<U> ChatUpstream for U where U: Upstream<Request = Ask, Answer = Map<String, Value>, Stream: ChatEvents> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_json_without_its_braces() {
        let input = serde_json::json!({"messages": [{"role": "user"}], "n": {"a": 1}});
        let ask = Ask::new(input.as_object().expect("an object"), 1);
        assert_eq!(&ask.fields[..], br#""messages":[{"role":"user"}],"n":{"a":1}"#);
        assert!(Ask::new(&Map::new(), 1).fields.is_empty());
    }
}
