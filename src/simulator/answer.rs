//! What a simulated model says: refusals, and chat completions, whole and streamed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use futures::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

use super::Visit;
use super::behaviour::Behaviour;

/// A part of a streamed body: bytes, a pause, or the end of the connection.
pub(super) enum Part {
    Bytes(Bytes),
    Pause(Duration),
    Hang,
    Cut,
}

/// The chat completion of `model`, which behaves like `behaviour`.
pub(super) fn chat(model: &str, behaviour: Behaviour, request: &Value, visit: Visit) -> Response<Body> {
    if request["stream"] == true {
        streamed(model, behaviour, request, visit)
    } else {
        whole(model, behaviour, request, visit)
    }
}

/// An answer that needs no model to give it.
pub(super) fn refusal(behaviour: Behaviour) -> Option<Response<Body>> {
    let response = match behaviour {
        Behaviour::RateLimited(after) => {
            let mut response = error(429, "rate_limit_exceeded", "Rate limit reached for requests");
            if let Some(after) = after {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after));
            }
            response
        }
        Behaviour::Status(401) => error(401, "invalid_api_key", "Incorrect API key provided"),
        Behaviour::Status(404) => error(404, "model_not_found", "The model does not exist"),
        Behaviour::Status(400) => {
            let body = json!({"error": {"message": "temperature must be at most 2", "type": "invalid_request_error",
                                        "param": "temperature", "code": null}});
            json_response(400, &body)
        }
        Behaviour::Status(status) => error(status, "simulated", "simulated failure"),
        Behaviour::Quota => error(429, "insufficient_quota", "You exceeded your current quota"),
        Behaviour::Context => {
            error(400, "context_length_exceeded", "This model's maximum context length is 8 tokens")
        }
        Behaviour::Policy => error(400, "content_policy_violation", "Your request was rejected"),
        Behaviour::Html => {
            let mut response = Response::new(Body::from("<html><body>hello</body></html>"));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            response
        }
        _ => return None,
    };
    Some(response)
}

fn whole(model: &str, behaviour: Behaviour, request: &Value, visit: Visit) -> Response<Body> {
    let text = format!("Hello from {model}.");
    let body = match behaviour {
        Behaviour::ErrorIn200 => {
            json!({"error": {"code": "server_error", "message": "simulated error inside a 200"}})
        }
        Behaviour::EmptyChoices => completion(model, &json!([]), request, 0),
        Behaviour::EmptyContent => {
            completion(model, &choices(&json!({"role": "assistant", "content": ""})), request, 0)
        }
        Behaviour::BadJson => {
            visit.finished();
            let mut response = Response::new(Body::from("{\"choices\": ["));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return response;
        }
        Behaviour::Tools => {
            let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            completion(model, &choices(&message), request, 8)
        }
        _ => completion(
            model,
            &choices(&json!({"role": "assistant", "content": text})),
            request,
            text.len() as u64,
        ),
    };
    let bytes = Bytes::from(body.to_string());
    match broken(behaviour, &bytes) {
        Some(parts) => in_parts(parts, visit, "application/json"),
        None => {
            visit.finished();
            json_response(200, &body)
        }
    }
}

/// A whole body that does not come to its end, where `behaviour` is one of those.
pub(super) fn broken(behaviour: Behaviour, bytes: &Bytes) -> Option<Vec<Part>> {
    let half = || Part::Bytes(bytes.slice(..bytes.len() / 2));
    Some(match behaviour {
        Behaviour::HangAfterHeaders | Behaviour::HangAfterRole => vec![Part::Hang],
        Behaviour::HangAfterContent => vec![half(), Part::Hang],
        Behaviour::CutBeforeContent => vec![Part::Cut],
        Behaviour::CutAfterContent => vec![half(), Part::Cut],
        _ => return None,
    })
}

fn streamed(model: &str, behaviour: Behaviour, request: &Value, visit: Visit) -> Response<Body> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "chatcmpl-sim", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model,
               "system_fingerprint": "fp_sim",
               "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let sse = |event: Value| Part::Bytes(Bytes::from(format!("data: {event}\n\n")));
    let role = || sse(chunk(json!({"role": "assistant", "content": ""}), None));
    let say = |text: &str| sse(chunk(json!({"content": text}), None));
    let done = || Part::Bytes(Bytes::from_static(b"data: [DONE]\n\n"));
    let usage = |tokens: u64| {
        (request["stream_options"]["include_usage"] == true).then(|| {
            sse(json!({"id": "chatcmpl-sim", "object": "chat.completion.chunk", "created": 1_700_000_000,
                       "model": model, "choices": [], "usage": usage_of(request, tokens)}))
        })
    };
    let mut parts = match behaviour {
        Behaviour::HangAfterHeaders => vec![Part::Hang],
        Behaviour::CutBeforeContent => vec![role(), Part::Cut],
        Behaviour::HangAfterRole => vec![role(), Part::Hang],
        Behaviour::ErrorIn200 => {
            vec![sse(json!({"error": {"code": "server_error", "message": "simulated"}}))]
        }
        Behaviour::EmptyChoices => vec![sse(json!({"id": "x", "choices": []})), done()],
        Behaviour::EmptyContent => vec![role(), sse(chunk(json!({}), Some("stop"))), done()],
        Behaviour::HangAfterContent => vec![role(), say("Hello"), Part::Hang],
        Behaviour::CutAfterContent => vec![role(), say("Hello"), say(" from"), Part::Cut],
        Behaviour::BadJson => {
            vec![role(), say("Hello"), Part::Bytes(Bytes::from_static(b"data: {oops\n\n")), say("!"), done()]
        }
        Behaviour::Odd => odd(model),
        Behaviour::Tools => tool_call(&chunk),
        _ => Vec::new(),
    };
    if parts.is_empty() {
        let pieces: Vec<String> = match behaviour {
            Behaviour::Pieces(count, _) => (0..count).map(|n| format!("{n} ")).collect(),
            Behaviour::Bulk(count) => vec!["x".repeat(64 * 1_024); count as usize],
            _ => ["Hello", " from ", model, "."].map(str::to_owned).to_vec(),
        };
        parts.push(role());
        if let Behaviour::Reasoning(count, apart) = behaviour {
            for _ in 0..count {
                parts.push(sse(chunk(json!({"reasoning_content": "hm "}), None)));
                parts.push(Part::Pause(apart));
            }
        }
        for piece in &pieces {
            if let Behaviour::Pieces(_, apart) = behaviour {
                parts.push(Part::Pause(apart));
            }
            parts.push(say(piece));
        }
        parts.push(sse(chunk(json!({}), Some("stop"))));
        if behaviour != Behaviour::NoDone {
            parts.extend(usage(pieces.len() as u64));
            parts.push(done());
        }
    }
    in_parts(parts, visit, "text/event-stream")
}

/// Everything that the standard allows and a careless parser stumbles over.
fn odd(model: &str) -> Vec<Part> {
    let event = format!(
        "data:{}\r\n\r\n",
        json!({"id": "x", "model": model, "choices": [{"index": 0, "delta": {"content": "Grüße 😀"}}]})
    );
    let bytes = event.as_bytes();
    let emoji = bytes.iter().position(|byte| *byte == 0xf0).unwrap_or(0);
    let pause = || Part::Pause(Duration::from_millis(5));
    let part = |slice: &[u8]| Part::Bytes(Bytes::copy_from_slice(slice));
    vec![
        part("\u{feff}: a comment\n\nevent: message\n".as_bytes()),
        part(&bytes[..=emoji]),
        pause(),
        part(&bytes[emoji + 1..emoji + 3]),
        pause(),
        part(&bytes[emoji + 3..bytes.len() - 3]),
        pause(),
        part(&bytes[bytes.len() - 3..]),
        part(b"data:{\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\nid: 7\n"),
        part(b"data: [DONE]"),
    ]
}

fn tool_call(chunk: &dyn Fn(Value, Option<&str>) -> Value) -> Vec<Part> {
    let call = |arguments: String, first: bool| {
        let mut call = json!({"index": 0, "function": {"arguments": arguments}});
        if first {
            call["id"] = json!("call_1");
            call["function"]["name"] = json!("f");
        }
        json!({"tool_calls": [call]})
    };
    let deltas = (0..20).map(|n| chunk(call(format!("{n},"), n == 0), None));
    deltas
        .chain([chunk(json!({}), Some("tool_calls"))])
        .map(|event| Part::Bytes(Bytes::from(format!("data: {event}\n\n"))))
        .chain([Part::Bytes(Bytes::from_static(b"data: [DONE]\n\n"))])
        .collect()
}

pub(super) fn in_parts(parts: Vec<Part>, visit: Visit, content_type: &'static str) -> Response<Body> {
    let body = stream::iter(parts).then(|part| async {
        match part {
            Part::Bytes(bytes) => Some(Ok(bytes)),
            Part::Pause(pause) => {
                tokio::time::sleep(pause).await;
                None
            }
            Part::Hang => std::future::pending().await,
            Part::Cut => {
                // What was said before the cut shall arrive.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some(Err(io::Error::other("simulated cut")))
            }
        }
    });
    let body = Visited { inner: Box::pin(body.filter_map(std::future::ready)), visit };
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Keeps a visit open for as long as its body.
struct Visited<S> {
    inner: Pin<Box<S>>,
    visit: Visit,
}

impl<S: Stream> Stream for Visited<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let next = self.inner.as_mut().poll_next(context);
        if matches!(next, Poll::Ready(None)) {
            self.visit.finished();
        }
        next
    }
}

fn completion(model: &str, choices: &Value, request: &Value, tokens: u64) -> Value {
    json!({"id": "chatcmpl-sim", "object": "chat.completion", "created": 1_700_000_000, "model": model,
           "system_fingerprint": "fp_sim", "choices": choices, "usage": usage_of(request, tokens)})
}

fn choices(message: &Value) -> Value {
    json!([{"index": 0, "message": message, "finish_reason": "stop"}])
}

pub(super) fn usage_of(request: &Value, completion_tokens: u64) -> Value {
    let prompt_tokens = request["messages"].to_string().len() as u64 / 4;
    json!({"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
           "total_tokens": prompt_tokens + completion_tokens})
}

pub(super) fn error(status: u16, code: &str, message: &str) -> Response<Body> {
    json_response(status, &json!({"error": {"code": code, "message": message, "type": code, "param": null}}))
}

pub(super) fn json_response(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A recorded answer.
pub(super) fn recorded(recorded: &super::Recorded) -> Response<Body> {
    let mut response = match &recorded.body {
        Value::String(text) => {
            let mut response = Response::new(Body::from(text.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            response
        }
        body => json_response(200, body),
    };
    *response.status_mut() =
        StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &recorded.headers {
        if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A response that closes the connection: its body fails before its first byte.
pub(super) fn reset() -> Response<Body> {
    let failing = stream::iter([Err::<Bytes, _>(io::Error::other("simulated reset"))]);
    let mut response = Response::new(Body::from_stream(failing));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Nothing can go wrong when an answer is made.
pub(super) type Made = Result<Response<Body>, Infallible>;
