//! A committed stream on its way to the caller: pumped by the task, read by the connection.
//!
//! The pump waits for the caller to read (a slow caller slows the upstream), notices at once when the
//! caller leaves, and settles the task before the stream's last event.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use forebay_engine::live::{LiveStream, StreamEnd};
use forebay_engine::{Class, Clock, Failure};
use forebay_wire::accumulate::Accumulator;
use forebay_wire::chat::disguise;
use forebay_wire::responses::disguise_response;
use futures::stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer::{Answer, id_prefix};
use super::error::{ApiError, Dialect};
use super::request::Asked;
use super::run::Running;
use crate::exchange::{AnswerStream, ModelUpstream, Operation, StreamEvent};
use crate::ledger::TaskStatus;

/// Events between the upstream and the caller; beyond them the upstream waits.
const IN_BETWEEN: usize = 16;
/// A caller that takes nothing for so long has left.
const CALLER_PATIENCE: Duration = Duration::from_secs(60);
/// How often a committed but silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The answer broke off, and nothing but the connection's end can say so.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(super) struct BrokeOff;

/// What a connection is told: bytes, or that there will be no end.
pub(super) type ToCaller = mpsc::Sender<Result<Bytes, BrokeOff>>;

/// A stream that has begun: what the connection reads.
#[derive(Debug)]
pub(super) struct StreamStart {
    /// What every answer of the task carries.
    headers: HeaderMap,
    from_task: mpsc::Receiver<Result<Bytes, BrokeOff>>,
}

impl StreamStart {
    fn new(task_id: &str, content_type: &str, from_task: mpsc::Receiver<Result<Bytes, BrokeOff>>) -> Self {
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_str(content_type);
        headers.insert(
            header::CONTENT_TYPE,
            kind.unwrap_or(HeaderValue::from_static("application/octet-stream")),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        if let Ok(id) = HeaderValue::from_str(task_id) {
            headers.insert("x-request-id", id);
        }
        Self { headers, from_task }
    }

    /// A whole answer as a stream.
    pub(super) fn of(answer: &Answer, dialect: Dialect, include_usage: bool) -> Self {
        let (to_caller, from_task) = mpsc::channel(1);
        // There is room for one.
        let _ = to_caller.try_send(Ok(replayed(answer, dialect, include_usage).into()));
        let mut start = Self::new(&answer.task_id, EVENTS, from_task);
        answer.mark(&mut start.headers);
        start
    }

    /// The response.
    pub(super) fn response(self) -> Response<Body> {
        let body = stream::unfold(self.from_task, async |mut from_task| {
            let event = from_task.recv().await?;
            Some((event, from_task))
        });
        let mut response = Response::new(Body::from_stream(body));
        *response.headers_mut() = self.headers;
        response
    }
}

/// What a stream of events is.
const EVENTS: &str = "text/event-stream";

/// The two ends of a file that is passed on.
pub(super) fn file_channel(task_id: &str, content_type: &str) -> (ToCaller, StreamStart) {
    let (to_caller, from_task) = mpsc::channel(IN_BETWEEN);
    (to_caller, StreamStart::new(task_id, content_type, from_task))
}

/// The two ends of a stream.
pub(super) fn channel(task_id: &Arc<str>, clock: &Arc<dyn Clock>) -> (Pump, StreamStart) {
    let (to_caller, from_task) = mpsc::channel(IN_BETWEEN);
    let pump = Pump {
        to_caller,
        whole: Accumulator::new(),
        response: None,
        told_usage: false,
        clock: clock.clone(),
    };
    (pump, StreamStart::new(task_id, EVENTS, from_task))
}

/// Moves events from the upstream to the caller.
pub(super) struct Pump {
    to_caller: ToCaller,
    whole: Accumulator,
    /// The whole answer, as the last event of the Responses API says it.
    response: Option<Map<String, Value>>,
    /// The upstream has said what it used.
    told_usage: bool,
    clock: Arc<dyn Clock>,
}

/// The caller has left, or reads no more.
struct Left;

impl Pump {
    /// Pumps until the end, and records it.
    pub(super) async fn run<U: ModelUpstream>(
        mut self,
        running: Running<U>,
        mut live: LiveStream<U::Stream>,
    ) {
        let passed_on = tokio::select! {
            passed_on = self.pass_on(&running, &mut live) => passed_on,
            () = running.gateway.work.has_been_cut() => Ok(Err(Failure::new(Class::Unknown, "the gateway stopped"))),
        };
        let end = match passed_on {
            Ok(Ok(())) => StreamEnd::Complete,
            Ok(Err(failure)) => StreamEnd::Died(failure),
            Err(Left) => StreamEnd::CallerLeft,
        };
        let usage = live.source().usage(&running.worst);
        let provider_task_id = live.source().provider_task_id();
        let attempt = live.end(&end, Some(usage), provider_task_id);
        let output = self.output(running.asked.operation);
        match end {
            StreamEnd::Complete => {
                let answer = running.answer(output, None, &attempt);
                running.end_well(&answer, attempt).await;
                let _ = self.say_goodbye(&running.asked, &answer).await;
            }
            StreamEnd::Died(_) => {
                let error = ApiError::stream_died().of_task(&running.task_id);
                running.end_badly(TaskStatus::Failed, &error, Some(attempt)).await;
                let _ = self.send(error_event(&error, &running.asked)).await;
            }
            StreamEnd::CallerLeft => {
                // What was delivered is paid for.
                let answer = running.answer(output, None, &attempt);
                running.cancelled_after_content(&answer, attempt).await;
            }
        }
    }

    async fn pass_on<U: ModelUpstream>(
        &mut self,
        running: &Running<U>,
        live: &mut LiveStream<U::Stream>,
    ) -> Result<Result<(), Failure>, Left> {
        loop {
            let event = match self.next(live).await? {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(Ok(())),
                Err(failure) => return Ok(Err(failure)),
            };
            if let Some(bytes) = self.own(running, event) {
                self.send(bytes).await?;
            }
        }
    }

    /// The next event, with a word to the caller now and then while it is waited for.
    async fn next<S: AnswerStream>(
        &self,
        live: &mut LiveStream<S>,
    ) -> Result<Result<Option<StreamEvent>, Failure>, Left> {
        let next = live.next();
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                event = &mut next => return Ok(event),
                () = self.to_caller.closed() => return Err(Left),
                () = tokio::time::sleep_until(Instant::now() + KEEP_ALIVE) => {
                    // A full channel needs no sign of life.
                    let _ = self.to_caller.try_send(Ok(Bytes::from_static(b": keep-alive\n\n")));
                }
            }
        }
    }

    /// What was said so far, whole.
    fn output(&mut self, operation: Operation) -> Map<String, Value> {
        match operation {
            Operation::Responses => Answer::split(self.response.take().unwrap_or_default()).0,
            _ => Map::from_iter([("choices".to_owned(), self.whole.choices())]),
        }
    }

    /// Makes an upstream's event ours, or keeps it from a caller who did not ask for it.
    fn own<U: ModelUpstream>(&mut self, running: &Running<U>, event: StreamEvent) -> Option<Bytes> {
        match event {
            StreamEvent::Chunk { chunk, usage_only } => self.own_chunk(running, chunk, usage_only),
            StreamEvent::Response(event) => Some(self.own_response(running, event)),
            // A text has no such pieces.
            StreamEvent::Bytes(_) => None,
        }
    }

    fn own_chunk<U: ModelUpstream>(
        &mut self,
        running: &Running<U>,
        mut chunk: Map<String, Value>,
        usage_only: bool,
    ) -> Option<Bytes> {
        self.whole.add(&chunk);
        let asked = &running.asked;
        self.told_usage |= chunk.get("usage").is_some_and(Value::is_object);
        if usage_only && (asked.dialect == Dialect::Forebay || !asked.include_usage) {
            return None;
        }
        disguise(&mut chunk, "", "");
        chunk.insert("id".into(), stream_id(asked.operation, &running.task_id).into());
        chunk.insert("object".into(), stream_object(asked.operation).into());
        chunk.insert("created".into(), (running.created_at / 1_000).into());
        chunk.insert("model".into(), asked.alias.clone().into());
        if !asked.include_usage || asked.dialect == Dialect::Forebay {
            chunk.shift_remove("usage");
        }
        let json = Value::Object(chunk);
        Some(Bytes::from(match asked.dialect {
            Dialect::Forebay => format!("event: delta\ndata: {json}\n\n"),
            Dialect::OpenAi => format!("data: {json}\n\n"),
        }))
    }

    fn own_response<U: ModelUpstream>(
        &mut self,
        running: &Running<U>,
        mut event: Map<String, Value>,
    ) -> Bytes {
        disguise_response(
            &mut event,
            &stream_id(Operation::Responses, &running.task_id),
            &running.asked.alias,
        );
        if let Some(Value::Object(response)) = event.get_mut("response") {
            response.insert("created_at".into(), (running.created_at / 1_000).into());
            self.response = Some(response.clone());
        }
        Bytes::from(response_event(&event))
    }

    async fn send(&self, event: Bytes) -> Result<(), Left> {
        let until = self.clock.now() + CALLER_PATIENCE;
        tokio::select! {
            biased;
            sent = self.to_caller.send(Ok(event)) => sent.map_err(|_| Left),
            () = self.clock.sleep_until(until) => Err(Left),
        }
    }

    async fn say_goodbye(&self, asked: &Asked, answer: &Answer) -> Result<(), Left> {
        match asked.dialect {
            Dialect::Forebay => self.send(Bytes::from(done_event(answer))).await,
            Dialect::OpenAi if asked.operation == Operation::Responses => Ok(()),
            Dialect::OpenAi => {
                if asked.include_usage && !self.told_usage {
                    self.send(Bytes::from(format!("data: {}\n\n", usage_chunk(answer)))).await?;
                }
                self.send(Bytes::from_static(b"data: [DONE]\n\n")).await
            }
        }
    }
}

/// The id of a streamed answer's events.
fn stream_id(operation: Operation, task_id: &str) -> String {
    format!("{}-{task_id}", id_prefix(operation).unwrap_or("task"))
}

const fn stream_object(operation: Operation) -> &'static str {
    match operation {
        Operation::Completion => "text_completion",
        _ => "chat.completion.chunk",
    }
}

/// An event of the Responses API, which also names its type outside.
fn response_event(event: &Map<String, Value>) -> String {
    let kind = event.get("type").and_then(Value::as_str).unwrap_or("message");
    let json = serde_json::to_string(event).unwrap_or_default();
    format!("event: {kind}\ndata: {json}\n\n")
}

fn chunk_of(answer: &Answer, choices: &Value) -> Value {
    json!({"id": stream_id(answer.operation, &answer.task_id), "object": stream_object(answer.operation),
           "created": answer.created, "model": answer.alias, "choices": choices})
}

/// The last chunk of a caller who asked for usage.
fn usage_chunk(answer: &Answer) -> Value {
    let mut chunk = chunk_of(answer, &json!([]));
    chunk["usage"] = answer.openai_usage().unwrap_or_default();
    chunk
}

fn done_event(answer: &Answer) -> String {
    format!("event: done\ndata: {}\n\n", Value::Object(answer.summary()))
}

fn error_event(error: &ApiError, asked: &Asked) -> Bytes {
    let body = error.body(asked.dialect);
    Bytes::from(match asked.dialect {
        Dialect::Forebay => format!("event: error\ndata: {body}\n\n"),
        Dialect::OpenAi if asked.operation == Operation::Responses => {
            let event = json!({"type": "error", "code": error.code, "message": error.message, "param": error.param,
                               "error": body["error"]});
            format!("event: error\ndata: {event}\n\n")
        }
        Dialect::OpenAi => format!("data: {body}\n\n"),
    })
}

/// A finished task once more, as a stream: one delta and the end.
pub(super) fn replay(answer: &Answer, dialect: Dialect, include_usage: bool) -> Response<Body> {
    StreamStart::of(answer, dialect, include_usage).response()
}

fn replayed(answer: &Answer, dialect: Dialect, include_usage: bool) -> String {
    if answer.operation == Operation::Responses {
        return replayed_response(answer);
    }
    let mut choices = answer.output.get("choices").cloned().unwrap_or_default();
    for choice in choices.as_array_mut().into_iter().flatten() {
        if let Some(choice) = choice.as_object_mut()
            && let Some(mut message) = choice.shift_remove("message")
        {
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
            for (index, call) in calls.enumerate() {
                call["index"] = json!(index);
            }
            choice.insert("delta".into(), message);
        }
    }
    let mut events = Vec::new();
    match dialect {
        Dialect::Forebay => {
            events.push(format!("event: delta\ndata: {}\n\n", chunk_of(answer, &choices)));
            events.push(done_event(answer));
        }
        Dialect::OpenAi => {
            events.push(format!("data: {}\n\n", chunk_of(answer, &choices)));
            if include_usage {
                events.push(format!("data: {}\n\n", usage_chunk(answer)));
            }
            events.push("data: [DONE]\n\n".into());
        }
    }
    events.concat()
}

/// The beginning, each text once, and the end.
fn replayed_response(answer: &Answer) -> String {
    let mut whole = json!({"id": stream_id(Operation::Responses, &answer.task_id), "object": "response",
                           "created_at": answer.created, "model": answer.alias});
    if let Some(whole) = whole.as_object_mut() {
        whole.extend(answer.output.clone());
        whole.insert("usage".into(), answer.openai_usage().unwrap_or_default());
    }
    let mut events = vec![json!({"type": "response.created", "response": whole})];
    for (place, item) in whole["output"].as_array().into_iter().flatten().enumerate() {
        let parts = item["content"].as_array().into_iter().flatten().enumerate();
        for (part, text) in parts.filter_map(|(part, content)| Some((part, content["text"].as_str()?))) {
            events.push(json!({"type": "response.output_text.delta", "item_id": item["id"],
                               "output_index": place, "content_index": part, "delta": text, "logprobs": []}));
        }
    }
    events.push(json!({"type": "response.completed", "response": whole}));
    let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
        event["sequence_number"] = json!(number);
        response_event(event.as_object().unwrap_or(&Map::new()))
    });
    numbered.collect()
}
