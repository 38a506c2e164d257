//! OpenAI's API as hundreds of providers speak it: where each operation is asked for, the body it is
//! asked with, and what of a whole answer is an answer.

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::{Class, Failure, Usage};
use forebay_wire::chat::AnswerContent;
use forebay_wire::classify::classify_inside;
use forebay_wire::content::{has_image, is_embedding, is_moderation, is_rerank, transcript_chars};
use forebay_wire::responses::WholeResponse;
use forebay_wire::usage::read_usage;
use serde_json::{Map, Value};

use super::call::Call;
use super::files::File;
use super::protocol::Understood;
use crate::catalog::ModelTarget;
use crate::exchange::{self, Ask, Operation};

/// Below the base URL.
pub(super) const fn path(operation: Operation) -> &'static str {
    match operation {
        Operation::Chat => "chat/completions",
        Operation::Completion => "completions",
        Operation::Responses => "responses",
        Operation::Image => "images/generations",
        Operation::ImageEdit => "images/edits",
        Operation::Speech => "audio/speech",
        Operation::Transcription => "audio/transcriptions",
        Operation::Embedding => "embeddings",
        Operation::Rerank => "rerank",
        Operation::Moderation => "moderations",
    }
}

/// A JSON request. `extra` is a further field, as JSON.
pub(super) fn call(model: &ModelTarget, ask: &Ask, stream: bool, extra: Option<&str>) -> Call {
    let own = own_voice(model, ask);
    let fields = own.as_ref().unwrap_or(&ask.fields);
    let mut body = BytesMut::with_capacity(fields.len() + model.upstream_model.len() + 128);
    body.put_slice(b"{\"model\":");
    body.put_slice(Value::String(model.upstream_model.to_string()).to_string().as_bytes());
    let streamed = stream && !ask.operation.answers_a_file();
    if streamed {
        body.put_slice(b",\"stream\":true");
        if ask.operation != Operation::Responses {
            body.put_slice(b",\"stream_options\":{\"include_usage\":true}");
        }
    }
    if let Some(extra) = extra {
        body.put_u8(b',');
        body.put_slice(extra.as_bytes());
    }
    if !fields.is_empty() {
        body.put_u8(b',');
        body.put_slice(fields);
    }
    body.put_u8(b'}');
    let accept = match ask.operation {
        Operation::Speech => "*/*",
        _ if streamed => "text/event-stream",
        _ => "application/json",
    };
    Call { accept, ..Call::json(body.freeze()) }
}

/// The fields with the voice called as this model calls it, where that differs.
fn own_voice(model: &ModelTarget, ask: &Ask) -> Option<Bytes> {
    let asked = ask.input.get("voice").filter(|_| ask.operation == Operation::Speech)?.as_str()?;
    let own = model.voices.get(asked)?;
    let mut input = (*ask.input).clone();
    input.insert("voice".into(), own.as_str().into());
    Some(exchange::fields(&input))
}

/// What this model calls a voice.
pub(super) fn voice<'a>(model: &'a ModelTarget, asked: &'a str) -> &'a str {
    model.voices.get(asked).map_or(asked, String::as_str)
}

/// Several files of one name form a list.
pub(super) fn named(mut files: Vec<File>) -> Vec<File> {
    let images = files.iter().filter(|file| file.name == "image").count();
    if images > 1 {
        for file in files.iter_mut().filter(|file| file.name == "image") {
            file.name = "image[]".into();
        }
    }
    files
}

/// Whether the body of a 200 answers what was asked, and what it consumed.
///
/// # Errors
/// The class of the error inside it; [`Class::Unknown`] for an image that is not there, since it may
/// have been made and billed; [`Class::BadAnswer`] where asking again costs cents.
pub(super) fn understand(ask: &Ask, body: Map<String, Value>) -> Result<Understood, Failure> {
    let body = Value::Object(body);
    if let Some(failure) = classify_inside(&body) {
        return Err(failure);
    }
    let reported = body.get("usage").and_then(read_usage);
    let usage = match ask.operation {
        Operation::Chat | Operation::Completion => Some(text_usage(ask, &body, reported)?),
        Operation::Responses => Some(response_usage(ask, &body)?),
        Operation::Image | Operation::ImageEdit => return images(body, reported),
        Operation::Embedding if is_embedding(&body) => Some(or_estimate(ask, reported)),
        Operation::Rerank if is_rerank(&body) => Some(rerank_usage(ask, &body, reported)),
        Operation::Moderation if is_moderation(&body) => Some(or_estimate(ask, reported)),
        Operation::Transcription if transcript_chars(&body) > 0 => Some(heard(ask, &body, reported)),
        // Silence has no words in it, and is a transcript all the same.
        Operation::Transcription if body.get("text").is_some_and(Value::is_string) => {
            Some(heard(ask, &body, reported))
        }
        _ => return Err(bad("an answer without a result", reported)),
    };
    let Value::Object(body) = body else { return Err(bad("a 200 that is no JSON object", None)) };
    Ok(Understood { body, usage })
}

/// What a 200 that is no JSON object means.
pub(super) fn unreadable(operation: Operation) -> Failure {
    let class = match operation {
        Operation::Image | Operation::ImageEdit | Operation::Speech => Class::Unknown,
        _ => Class::BadAnswer,
    };
    Failure::new(class, "a 200 that is no JSON object").with_status(200)
}

fn bad(why: &str, billed: Option<Usage>) -> Failure {
    Failure::new(Class::BadAnswer, why).with_status(200).with_billed(billed)
}

fn text_usage(ask: &Ask, body: &Value, reported: Option<Usage>) -> Result<Usage, Failure> {
    let content = AnswerContent::read(body);
    check_length(ask, content.bytes, content.text_chars, reported)?;
    Ok(reported.unwrap_or_else(|| Usage::estimate(ask.fields.len() as u64, content.bytes as u64)))
}

fn check_length(
    ask: &Ask,
    bytes: usize,
    text_chars: Option<usize>,
    billed: Option<Usage>,
) -> Result<(), Failure> {
    if bytes == 0 {
        return Err(bad("an answer without content", billed));
    }
    if text_chars.is_some_and(|chars| chars < ask.min_content_chars) {
        return Err(bad("an answer below min_content_chars", billed));
    }
    Ok(())
}

fn response_usage(ask: &Ask, body: &Value) -> Result<Usage, Failure> {
    let read = WholeResponse::read(body);
    if let Some(failure) = read.failure {
        return Err(failure.with_billed(read.usage));
    }
    if !read.status.is_answer() {
        return Err(bad("a response that is not at its end", read.usage));
    }
    check_length(ask, read.content.bytes, read.content.text_chars, read.usage)?;
    Ok(read.usage.unwrap_or_else(|| Usage::estimate(ask.fields.len() as u64, read.content.bytes as u64)))
}

/// Images that are there; where some failed, the rest are the answer.
fn images(mut body: Value, reported: Option<Usage>) -> Result<Understood, Failure> {
    let found = has_image(&body);
    if found.images == 0 {
        // The first of the errors inside says why there is none.
        let inside =
            found.errors.first().and_then(|error| classify_inside(&serde_json::json!({ "error": error })));
        let nothing =
            || Failure::new(Class::Unknown, "an answer with neither an image nor an error").with_status(200);
        return Err(inside.unwrap_or_else(nothing));
    }
    if let Some(data) = body.get_mut("data").and_then(Value::as_array_mut) {
        data.retain(|item| item.get("error").is_none_or(Value::is_null));
    }
    let usage = Usage { images: found.images as u64, ..reported.unwrap_or_default() };
    let Value::Object(body) = body else { return Err(unreadable(Operation::Image)) };
    Ok(Understood { body, usage: Some(usage) })
}

fn or_estimate(ask: &Ask, reported: Option<Usage>) -> Usage {
    reported.unwrap_or_else(|| Usage::estimate(ask.fields.len() as u64, 0))
}

/// A unit is what the provider calls one, or else the request.
fn rerank_usage(ask: &Ask, body: &Value, reported: Option<Usage>) -> Usage {
    let units = body.pointer("/meta/billed_units/search_units").and_then(Value::as_u64).unwrap_or(1);
    Usage { rerank_units: units, ..or_estimate(ask, reported) }
}

/// How long the recording was: as the answer says, or as it was reckoned from the file.
fn heard(ask: &Ask, body: &Value, reported: Option<Usage>) -> Usage {
    let said = body.pointer("/usage/seconds").or_else(|| body.get("duration"));
    let seconds = said.and_then(|said| said.as_f64().or_else(|| said.as_str()?.parse().ok()));
    let millis =
        seconds.filter(|seconds| (0.0..1e9).contains(seconds)).map(|seconds| (seconds * 1_000.0) as u64);
    Usage { audio_millis: millis.unwrap_or(ask.worst.audio_millis), ..reported.unwrap_or_default() }
}
