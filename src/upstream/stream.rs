//! Streamed answers: server-sent events of text, and files that come in pieces.

use std::time::Duration;

use bytes::Bytes;
use forebay_engine::outcome::Usage;
use forebay_engine::stream::{EventSource, Piece};
use forebay_engine::{Class, Failure};
use forebay_wire::chat::Chunk;
use forebay_wire::classify::classify_inside;
use forebay_wire::responses::ResponseEvent;
use forebay_wire::sse::Decoder;
use http::header::CONTENT_TYPE;
use reqwest::Response;
use serde_json::{Map, Value};

use super::call::{Secret, innermost, read_all, refusal};
use super::protocol::Protocol;
use super::{ark, openai};
use crate::exchange::{AnswerStream, Operation, StreamEvent};

/// What of a whole answer in a stream's place is read, in bytes; and the largest file inside JSON.
const WHOLE_CAP: usize = 64 * 1024 * 1024;
/// How long a finished stream's connection may take to end before it is given up.
const DRAIN: Duration = Duration::from_millis(500);

/// A streamed answer of either kind.
#[derive(Debug)]
pub enum HttpStream {
    /// Text.
    Events(Box<EventStream>),
    /// A file.
    File(Box<FileStream>),
}

/// Begins to read a stream, or finds out why there is none.
pub(super) async fn read(
    response: Response,
    protocol: Protocol,
    operation: Operation,
    secret: Secret,
) -> Result<HttpStream, Failure> {
    if !response.status().is_success() {
        return Err(refusal(response, &secret).await);
    }
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.map(str::to_owned);
    let is_json = content_type.as_deref().is_some_and(|kind| kind.starts_with("application/json"));
    if operation.answers_a_file() {
        // A page is no speech, and may come after speech was made and billed.
        if content_type.as_deref().is_some_and(|kind| kind.starts_with("text/")) {
            let why = format!("{} where speech was asked for", content_type.unwrap_or_default());
            return Err(secret.redacted(Failure::new(Class::Unknown, why).with_status(200)));
        }
        return match (is_json, protocol.wraps_files()) {
            (false, _) => Ok(HttpStream::File(Box::new(FileStream::new(response, content_type, secret)))),
            (true, wraps) => {
                let body = whole(response, &secret).await?;
                if wraps {
                    let bytes =
                        ark::spoken(&body).map_err(|failure| secret.redacted(failure.with_status(200)))?;
                    return Ok(HttpStream::File(Box::new(FileStream::of(bytes))));
                }
                let nothing = || openai::unreadable(operation);
                Err(secret.redacted(classify_inside(&body).unwrap_or_else(nothing).with_status(200)))
            }
        };
    }
    if is_json {
        let body = whole(response, &secret).await?;
        let failure = classify_inside(&body)
            .unwrap_or_else(|| Failure::new(Class::BadAnswer, "a whole answer where a stream was asked for"));
        return Err(secret.redacted(failure.with_status(200)));
    }
    Ok(HttpStream::Events(Box::new(EventStream::new(response, operation, secret))))
}

async fn whole(response: Response, secret: &Secret) -> Result<Value, Failure> {
    let bytes = read_all(response, WHOLE_CAP).await.map_err(|cut| secret.redacted(cut.with_status(200)))?;
    Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

impl EventSource for HttpStream {
    type Event = StreamEvent;

    async fn next(&mut self) -> Result<Option<Piece<StreamEvent>>, Failure> {
        match self {
            Self::Events(events) => events.next().await,
            Self::File(file) => file.next().await,
        }
    }
}

impl AnswerStream for HttpStream {
    fn usage(&self, worst: &Usage) -> Usage {
        match self {
            Self::Events(events) => {
                events.usage.unwrap_or_else(|| Usage::estimate(worst.input_tokens, events.content_bytes))
            }
            Self::File(_) => Usage { characters: worst.characters, ..Usage::default() },
        }
    }

    fn provider_task_id(&self) -> Option<String> {
        match self {
            Self::Events(events) => events.provider_task_id.clone(),
            Self::File(_) => None,
        }
    }

    fn content_type(&self) -> Option<&str> {
        match self {
            Self::Events(_) => None,
            Self::File(file) => file.content_type.as_deref(),
        }
    }
}

/// Server-sent events of a text.
#[derive(Debug)]
pub struct EventStream {
    response: Option<Response>,
    decoder: Option<Decoder>,
    operation: Operation,
    secret: Secret,
    provider_task_id: Option<String>,
    usage: Option<Usage>,
    content_bytes: u64,
    finished: bool,
    done: bool,
}

impl EventStream {
    fn new(response: Response, operation: Operation, secret: Secret) -> Self {
        Self {
            response: Some(response),
            decoder: Some(Decoder::new()),
            operation,
            secret,
            provider_task_id: None,
            usage: None,
            content_bytes: 0,
            finished: false,
            done: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Piece<StreamEvent>>, Failure> {
        let Some(decoder) = &mut self.decoder else { return Ok(None) };
        if let Some(event) = decoder.next_event() {
            if event.data == "[DONE]" {
                self.done = true;
                self.decoder = None;
                self.drain();
                return Ok(None);
            }
            return self.understand(&event.data).map(Some);
        }
        let Some(response) = &mut self.response else { return Ok(None) };
        match response.chunk().await {
            Ok(Some(bytes)) => match decoder.push(&bytes) {
                Ok(()) => Ok(Some(Piece::Quiet)),
                Err(broken) => Err(self.broken(broken.to_string())),
            },
            Ok(None) => {
                self.response = None;
                self.at_end()
            }
            Err(error) => {
                let why = format!("the stream was cut: {}", innermost(&error));
                Err(Failure::new(Class::Unknown, self.secret.redact(&why)).with_status(200))
            }
        }
    }

    fn understand(&mut self, data: &str) -> Result<Piece<StreamEvent>, Failure> {
        let Ok(Value::Object(event)) = serde_json::from_str(data) else {
            return Err(self.broken("an event that is no JSON object"));
        };
        let event = Value::Object(event);
        let (has_content, event) = match self.operation {
            Operation::Responses => self.understand_response(event)?,
            _ => self.understand_chunk(event)?,
        };
        Ok(if has_content { Piece::Content(event) } else { Piece::Other(event, data.len()) })
    }

    fn understand_chunk(&mut self, chunk: Value) -> Result<(bool, StreamEvent), Failure> {
        if let Some(failure) = classify_inside(&chunk) {
            return Err(self.secret.redacted(failure));
        }
        let read = Chunk::read(&chunk);
        self.finished |= read.finished;
        self.usage = read.usage.or(self.usage);
        self.content_bytes += read.content_bytes as u64;
        if self.provider_task_id.is_none() {
            self.provider_task_id = chunk.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        let chunk = self.object(chunk)?;
        Ok((read.has_content, StreamEvent::Chunk { chunk, usage_only: read.is_empty }))
    }

    fn understand_response(&mut self, event: Value) -> Result<(bool, StreamEvent), Failure> {
        let read = ResponseEvent::read(&event);
        if let Some(failure) = read.failure {
            return Err(self.secret.redacted(failure.with_billed(read.usage)));
        }
        self.finished |= read.is_end;
        self.usage = read.usage.or(self.usage);
        self.content_bytes += read.content_bytes as u64;
        if self.provider_task_id.is_none() {
            self.provider_task_id = read.id;
        }
        Ok((read.content_bytes > 0, StreamEvent::Response(self.object(event)?)))
    }

    fn object(&self, event: Value) -> Result<Map<String, Value>, Failure> {
        match event {
            Value::Object(event) => Ok(event),
            _ => Err(self.broken("an event that is no JSON object")),
        }
    }

    /// Broken before any content it answered nothing; after it nobody can tell what was billed.
    fn broken(&self, why: impl Into<String>) -> Failure {
        let class = if self.content_bytes == 0 { Class::BadAnswer } else { Class::Unknown };
        Failure::new(class, self.secret.redact(&why.into())).with_status(200)
    }

    /// The connection has ended: cleanly, or within the answer.
    fn at_end(&mut self) -> Result<Option<Piece<StreamEvent>>, Failure> {
        let Some(decoder) = self.decoder.take() else { return Ok(None) };
        match decoder.finish() {
            Ok(Some(event)) if event.data == "[DONE]" => self.done = true,
            Ok(Some(event)) => {
                let piece = self.understand(&event.data)?;
                // The next call finds neither decoder nor response, and ends.
                return if self.finished { Ok(Some(piece)) } else { Err(self.cut()) };
            }
            Ok(None) => {}
            Err(broken) => return Err(self.broken(broken.to_string())),
        }
        if self.done || self.finished || self.content_bytes == 0 { Ok(None) } else { Err(self.cut()) }
    }

    fn cut(&self) -> Failure {
        Failure::new(Class::Unknown, "the stream ended without a finish reason").with_status(200)
    }

    /// Lets the connection end in the background, so that it can serve again.
    fn drain(&mut self) {
        if let Some(mut response) = self.response.take() {
            tokio::spawn(async move {
                let _ =
                    tokio::time::timeout(DRAIN, async { while let Ok(Some(_)) = response.chunk().await {} })
                        .await;
            });
        }
    }
}

/// A file that comes in pieces.
#[derive(Debug)]
pub struct FileStream {
    response: Option<Response>,
    /// What came whole, inside JSON.
    whole: Option<Bytes>,
    content_type: Option<String>,
    secret: Secret,
    has_bytes: bool,
}

impl FileStream {
    fn new(response: Response, content_type: Option<String>, secret: Secret) -> Self {
        Self { response: Some(response), whole: None, content_type, secret, has_bytes: false }
    }

    fn of(bytes: Bytes) -> Self {
        Self {
            response: None,
            whole: Some(bytes),
            content_type: None,
            secret: Secret::default(),
            has_bytes: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Piece<StreamEvent>>, Failure> {
        if let Some(bytes) = self.whole.take() {
            return Ok(Some(self.piece(bytes)));
        }
        let Some(response) = &mut self.response else { return self.end() };
        match response.chunk().await {
            Ok(Some(bytes)) => Ok(Some(self.piece(bytes))),
            Ok(None) => {
                self.response = None;
                self.end()
            }
            Err(error) => {
                let why = format!("the file was cut short: {}", innermost(&error));
                Err(Failure::new(Class::Unknown, self.secret.redact(&why)).with_status(200))
            }
        }
    }

    fn piece(&mut self, bytes: Bytes) -> Piece<StreamEvent> {
        if bytes.is_empty() {
            return Piece::Quiet;
        }
        self.has_bytes = true;
        Piece::Content(StreamEvent::Bytes(bytes))
    }

    /// A file without a byte may have been made, and billed.
    fn end(&self) -> Result<Option<Piece<StreamEvent>>, Failure> {
        if self.has_bytes {
            Ok(None)
        } else {
            Err(Failure::new(Class::Unknown, "an empty file").with_status(200))
        }
    }
}
