//! A committed stream on its way to the caller: pumped by the task, read by the connection.
//!
//! The pump waits for the caller to read (a slow caller slows the upstream), notices at once when the
//! caller leaves, and settles the task before the stream's last event.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use forebay_engine::live::{LiveStream, StreamEnd};
use forebay_engine::{Clock, Failure};
use forebay_wire::accumulate::Accumulator;
use forebay_wire::chat::disguise;
use futures::stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer::Answer;
use super::error::{ApiError, Dialect};
use super::request::Asked;
use super::run::Running;
use crate::exchange::{ChatEvent, ChatEvents, ChatUpstream};
use crate::ledger::TaskStatus;

/// Events between the upstream and the caller; beyond them the upstream waits.
const IN_BETWEEN: usize = 16;
/// A caller that takes nothing for so long has left.
const CALLER_PATIENCE: Duration = Duration::from_secs(60);
/// How often a committed but silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream that has begun: what the connection reads.
#[derive(Debug)]
pub(super) struct StreamStart {
    task_id: Arc<str>,
    events: mpsc::Receiver<Bytes>,
}

impl StreamStart {
    /// The response.
    pub(super) fn response(self) -> Response<Body> {
        let body = stream::unfold(self.events, async |mut events| {
            let event = events.recv().await?;
            Some((Ok::<_, Infallible>(event), events))
        });
        let mut response = Response::new(Body::from_stream(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        if let Ok(id) = HeaderValue::from_str(&self.task_id) {
            headers.insert("x-request-id", id);
        }
        response
    }
}

/// The two ends of a stream.
pub(super) fn channel(task_id: &Arc<str>, clock: &Arc<dyn Clock>) -> (Pump, StreamStart) {
    let (to_caller, events) = mpsc::channel(IN_BETWEEN);
    let pump = Pump { to_caller, whole: Accumulator::new(), told_usage: false, clock: clock.clone() };
    (pump, StreamStart { task_id: task_id.clone(), events })
}

/// Moves events from the upstream to the caller.
pub(super) struct Pump {
    to_caller: mpsc::Sender<Bytes>,
    whole: Accumulator,
    /// The upstream has said what it used.
    told_usage: bool,
    clock: Arc<dyn Clock>,
}

/// The caller has left, or reads no more.
struct Left;

impl Pump {
    /// Pumps until the end, and records it.
    pub(super) async fn run<U: ChatUpstream>(mut self, running: Running<U>, mut live: LiveStream<U::Stream>) {
        let end = match self.pass_on(&running, &mut live).await {
            Ok(Ok(())) => StreamEnd::Complete,
            Ok(Err(failure)) => StreamEnd::Died(failure),
            Err(Left) => StreamEnd::CallerLeft,
        };
        let usage = live.source().usage(running.input_bytes);
        let provider_task_id = live.source().provider_task_id();
        let attempt = live.end(&end, Some(usage), provider_task_id);
        let mut output = Map::new();
        output.insert("choices".into(), self.whole.choices());
        match end {
            StreamEnd::Complete => {
                let answer = running.answer(output, None, &attempt);
                running.end_well(&answer, attempt).await;
                let _ = self.say_goodbye(&running.asked, &answer).await;
            }
            StreamEnd::Died(_) => {
                let error = ApiError::stream_died().of_task(&running.task_id);
                running.end_badly(TaskStatus::Failed, &error, Some(attempt)).await;
                let _ = self.send(error_event(&error, running.asked.dialect)).await;
            }
            StreamEnd::CallerLeft => {
                // What was delivered is paid for.
                let answer = running.answer(output, None, &attempt);
                running.cancelled_after_content(&answer, attempt).await;
            }
        }
    }

    async fn pass_on<U: ChatUpstream>(
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
    async fn next<S: ChatEvents>(
        &self,
        live: &mut LiveStream<S>,
    ) -> Result<Result<Option<ChatEvent>, Failure>, Left> {
        let next = live.next();
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                event = &mut next => return Ok(event),
                () = self.to_caller.closed() => return Err(Left),
                () = tokio::time::sleep_until(Instant::now() + KEEP_ALIVE) => {
                    // A full channel needs no sign of life.
                    let _ = self.to_caller.try_send(Bytes::from_static(b": keep-alive\n\n"));
                }
            }
        }
    }

    /// Makes an upstream's chunk ours, or keeps it from a caller who did not ask for it.
    fn own<U: ChatUpstream>(&mut self, running: &Running<U>, event: ChatEvent) -> Option<Bytes> {
        let ChatEvent { mut chunk, usage_only } = event;
        self.whole.add(&chunk);
        let asked = &running.asked;
        self.told_usage |= chunk.get("usage").is_some_and(Value::is_object);
        if usage_only && (asked.dialect == Dialect::Forebay || !asked.include_usage) {
            return None;
        }
        disguise(&mut chunk, "", "");
        chunk.insert("id".into(), format!("chatcmpl-{}", running.task_id).into());
        chunk.insert("object".into(), "chat.completion.chunk".into());
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

    async fn send(&self, event: Bytes) -> Result<(), Left> {
        let until = self.clock.now() + CALLER_PATIENCE;
        tokio::select! {
            biased;
            sent = self.to_caller.send(event) => sent.map_err(|_| Left),
            () = self.clock.sleep_until(until) => Err(Left),
        }
    }

    async fn say_goodbye(&self, asked: &Asked, answer: &Answer) -> Result<(), Left> {
        match asked.dialect {
            Dialect::Forebay => self.send(Bytes::from(done_event(answer))).await,
            Dialect::OpenAi => {
                if asked.include_usage && !self.told_usage {
                    self.send(Bytes::from(format!("data: {}\n\n", usage_chunk(answer)))).await?;
                }
                self.send(Bytes::from_static(b"data: [DONE]\n\n")).await
            }
        }
    }
}

fn chunk_of(answer: &Answer, choices: &Value) -> Value {
    json!({"id": format!("chatcmpl-{}", answer.task_id), "object": "chat.completion.chunk",
           "created": answer.created, "model": answer.alias, "choices": choices})
}

/// The last chunk of a caller who asked for usage.
fn usage_chunk(answer: &Answer) -> Value {
    let mut chunk = chunk_of(answer, &json!([]));
    chunk["usage"] = answer.openai_usage();
    chunk
}

fn done_event(answer: &Answer) -> String {
    format!("event: done\ndata: {}\n\n", Value::Object(answer.summary()))
}

fn error_event(error: &ApiError, dialect: Dialect) -> Bytes {
    let body = error.body(dialect);
    Bytes::from(match dialect {
        Dialect::Forebay => format!("event: error\ndata: {body}\n\n"),
        Dialect::OpenAi => format!("data: {body}\n\n"),
    })
}

/// A finished task once more, as a stream: one delta and the end.
pub(super) fn replay(answer: &Answer, dialect: Dialect, include_usage: bool) -> Response<Body> {
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
    let chunk = |choices: &Value| chunk_of(answer, choices);
    let mut events = Vec::new();
    match dialect {
        Dialect::Forebay => {
            events.push(format!("event: delta\ndata: {}\n\n", chunk(&choices)));
            events.push(done_event(answer));
        }
        Dialect::OpenAi => {
            events.push(format!("data: {}\n\n", chunk(&choices)));
            if include_usage {
                events.push(format!("data: {}\n\n", usage_chunk(answer)));
            }
            events.push("data: [DONE]\n\n".into());
        }
    }
    let mut response = Response::new(Body::from(events.concat()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    if let Ok(id) = HeaderValue::from_str(&answer.task_id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}
