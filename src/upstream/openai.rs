//! OpenAI's chat completions, whole and streamed, as hundreds of providers speak them.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::outcome::Usage;
use forebay_engine::stream::{EventSource, Piece};
use forebay_engine::upstream::{Order, Whole};
use forebay_engine::{Class, Failure};
use forebay_wire::chat::{AnswerContent, Chunk};
use forebay_wire::classify::{classify, classify_inside, short};
use forebay_wire::retry_after::retry_after;
use forebay_wire::sse::Decoder;
use forebay_wire::usage::read_usage;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::body::OnceBody;
use super::guard;
use crate::catalog::ModelTarget;
use crate::exchange::{Ask, ChatEvent, ChatEvents};

/// The largest whole answer, in bytes.
const ANSWER_CAP: usize = 64 * 1024 * 1024;
/// What of an error's body is read, in bytes.
const ERROR_CAP: usize = 64 * 1024;
/// How long a finished stream's connection may take to end before it is given up.
const DRAIN: Duration = Duration::from_millis(500);

/// Sends the request; a response of any status, and the secret that no message may hold.
pub(super) async fn send(
    client: &Client,
    url: Url,
    model: &ModelTarget,
    key: Option<&SecretString>,
    order: &Order<'_, Ask>,
    stream: bool,
) -> Result<(Response, String), Failure> {
    let secret = key.map_or_else(String::new, |key| key.expose_secret().to_owned());
    let body = OnceBody::new(body_of(model, order.request, stream), order.sent.clone());
    let mut request = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, if stream { "text/event-stream" } else { "application/json" })
        .body(reqwest::Body::wrap(body));
    if key.is_some() {
        request = request.bearer_auth(&secret);
    }
    match request.send().await {
        Ok(response) => Ok((response, secret)),
        Err(error) => Err(transport_failure(&error, order.sent.get(), &secret)),
    }
}

/// Where a model's chat completions are asked for, if it may be asked at all.
pub(super) fn endpoint(model: &ModelTarget) -> Result<Url, Failure> {
    let misconfigured = |why: String| Failure::new(Class::Misconfigured, why);
    let base = model.base_url.as_deref().unwrap_or(&model.provider.base_url);
    let url: Url = format!("{}/chat/completions", base.trim_end_matches('/'))
        .parse()
        .map_err(|error| misconfigured(format!("base_url: {error}")))?;
    let allowed = model.provider.allow_private_network && same_host(&url, &model.provider.base_url);
    guard::check_url(&url, allowed).map_err(|refusal| misconfigured(format!("base_url: {refusal}")))?;
    Ok(url)
}

/// A private network is allowed for exactly the host and port of the provider's own base URL.
fn same_host(url: &Url, base: &str) -> bool {
    base.parse::<Url>().is_ok_and(|base| {
        base.host() == url.host() && base.port_or_known_default() == url.port_or_known_default()
    })
}

fn body_of(model: &ModelTarget, ask: &Ask, stream: bool) -> Bytes {
    let mut body = BytesMut::with_capacity(ask.fields.len() + model.upstream_model.len() + 96);
    body.put_slice(b"{\"model\":");
    body.put_slice(Value::String(model.upstream_model.to_string()).to_string().as_bytes());
    if stream {
        body.put_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    }
    if !ask.fields.is_empty() {
        body.put_u8(b',');
        body.put_slice(&ask.fields);
    }
    body.put_u8(b'}');
    body.freeze()
}

/// An error below HTTP: before the body was read nothing was sent, after it nobody can tell.
fn transport_failure(error: &reqwest::Error, sent: bool, secret: &str) -> Failure {
    let class = if sent { Class::Unknown } else { Class::NotSent };
    Failure::new(class, redacted(&innermost(error), secret))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn redacted(message: &str, secret: &str) -> String {
    if secret.is_empty() { short(message) } else { short(&message.replace(secret, "[key]")) }
}

/// Reads a whole answer, or finds out why there is none.
pub(super) async fn read_whole(
    response: Response,
    ask: &Ask,
    secret: &str,
) -> Result<Whole<Map<String, Value>>, Failure> {
    if !response.status().is_success() {
        return Err(refusal(response, secret).await);
    }
    let bytes = read_all(response, ANSWER_CAP)
        .await
        .map_err(|cut| Failure { message: redacted(&cut.message, secret), ..cut }.with_status(200))?;
    let bad = |why: &str| Failure::new(Class::BadAnswer, why).with_status(200);
    let Ok(Value::Object(answer)) = serde_json::from_slice(&bytes) else {
        return Err(bad("a 200 that is no JSON object"));
    };
    let answer = Value::Object(answer);
    if let Some(failure) = classify_inside(&answer) {
        return Err(Failure { message: redacted(&failure.message, secret), ..failure });
    }
    let usage = answer.get("usage").and_then(read_usage);
    let content = AnswerContent::read(&answer);
    if content.bytes == 0 || content.text_chars.is_some_and(|chars| chars < ask.min_content_chars) {
        let what = if content.bytes == 0 {
            "an answer without content"
        } else {
            "an answer below min_content_chars"
        };
        return Err(Failure { billed: usage, ..bad(what) });
    }
    let usage = usage.unwrap_or_else(|| Usage::estimate(ask.fields.len() as u64, content.bytes as u64));
    let provider_task_id = answer.get("id").and_then(Value::as_str).map(str::to_owned);
    let Value::Object(answer) = answer else { return Err(bad("a 200 that is no JSON object")) };
    Ok(Whole { answer, usage: Some(usage), provider_task_id })
}

/// What an answer other than 200 means.
async fn refusal(response: Response, secret: &str) -> Failure {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let bytes = read_all(response, ERROR_CAP).await.unwrap_or_default();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let after = retry_after(header, &body, jiff::Timestamp::now());
    let failure = classify(status, &body).with_retry_after(after);
    Failure { message: redacted(&failure.message, secret), ..failure }
}

async fn read_all(mut response: Response, cap: usize) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(all.freeze()),
            Ok(Some(chunk)) if all.is_empty() && chunk.len() <= cap => all = BytesMut::from(chunk),
            Ok(Some(chunk)) if all.len() + chunk.len() <= cap => all.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                return Err(Failure::new(
                    Class::BadAnswer,
                    format!("an answer of more than {} MiB", cap >> 20),
                ));
            }
            Err(error) => {
                let why = format!("the answer was cut short: {}", innermost(&error));
                return Err(Failure::new(Class::Unknown, why));
            }
        }
    }
}

/// Begins to read a stream, or finds out why there is none.
pub(super) async fn read_stream(response: Response, secret: String) -> Result<ChatStream, Failure> {
    if !response.status().is_success() {
        return Err(refusal(response, &secret).await);
    }
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/json"));
    if is_json {
        let bytes = read_all(response, ERROR_CAP).await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let failure = classify_inside(&body)
            .unwrap_or_else(|| Failure::new(Class::BadAnswer, "a whole answer where a stream was asked for"));
        return Err(Failure { message: redacted(&failure.message, &secret), ..failure.with_status(200) });
    }
    Ok(ChatStream {
        response: Some(response),
        decoder: Some(Decoder::new()),
        secret,
        provider_task_id: None,
        usage: None,
        content_bytes: 0,
        finished: false,
        done: false,
    })
}

/// A streamed chat completion.
#[derive(Debug)]
pub struct ChatStream {
    response: Option<Response>,
    decoder: Option<Decoder>,
    secret: String,
    provider_task_id: Option<String>,
    usage: Option<Usage>,
    content_bytes: u64,
    finished: bool,
    done: bool,
}

impl ChatStream {
    fn understand(&mut self, data: &str) -> Result<Piece<ChatEvent>, Failure> {
        let Ok(Value::Object(chunk)) = serde_json::from_str(data) else {
            return Err(self.broken("an event that is no JSON object"));
        };
        let chunk = Value::Object(chunk);
        if let Some(failure) = classify_inside(&chunk) {
            return Err(Failure { message: redacted(&failure.message, &self.secret), ..failure });
        }
        let read = Chunk::read(&chunk);
        self.finished |= read.finished;
        self.usage = read.usage.or(self.usage);
        self.content_bytes += read.content_bytes as u64;
        if self.provider_task_id.is_none() {
            self.provider_task_id = chunk.get("id").and_then(Value::as_str).map(str::to_owned);
        }
        let Value::Object(chunk) = chunk else { return Err(self.broken("an event that is no JSON object")) };
        let event = ChatEvent { chunk, usage_only: read.is_empty };
        Ok(if read.has_content { Piece::Content(event) } else { Piece::Other(event, data.len()) })
    }

    /// Broken before any content it answered nothing; after it nobody can tell what was billed.
    fn broken(&self, why: impl Into<String>) -> Failure {
        let class = if self.content_bytes == 0 { Class::BadAnswer } else { Class::Unknown };
        Failure::new(class, redacted(&why.into(), &self.secret)).with_status(200)
    }

    /// The connection has ended: cleanly, or within the answer.
    fn at_end(&mut self) -> Result<Option<Piece<ChatEvent>>, Failure> {
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

impl ChatEvents for ChatStream {
    fn usage(&self, input_bytes: u64) -> Usage {
        self.usage.unwrap_or_else(|| Usage::estimate(input_bytes, self.content_bytes))
    }

    fn provider_task_id(&self) -> Option<String> {
        self.provider_task_id.clone()
    }
}

impl EventSource for ChatStream {
    type Event = ChatEvent;

    async fn next(&mut self) -> Result<Option<Piece<ChatEvent>>, Failure> {
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
                Err(Failure::new(Class::Unknown, redacted(&why, &self.secret)).with_status(200))
            }
        }
    }
}
