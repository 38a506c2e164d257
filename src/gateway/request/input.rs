//! What each operation may be asked: its fields checked, what it needs of a model, and what it can
//! consume at most.

use forebay_engine::{Needs, Usage};
use forebay_wire::audio::duration_millis;
use serde_json::{Map, Value};

use super::fields::{Fields, Place};
use crate::exchange::{FilePart, FileSource, Operation};
use crate::gateway::error::ApiError;

/// Output tokens that are held for where neither the request nor the model says how many.
const DEFAULT_MAX_TOKENS: u64 = 4_096;
/// Prompts and texts to speak, in characters.
const LONGEST_TEXT: usize = 1_000_000;
/// Images that one request may ask for, and bring along.
const MOST_IMAGES: u64 = 16;
/// A character is spoken in less than this.
const MILLIS_A_CHARACTER: u64 = 300;
/// A recording of unknown length is held for as if it were this long…
const UNKNOWN_RECORDING_MILLIS: u64 = 3_600_000;
/// …and one of a known size as if it were spoken at 8 kbit/s.
const MILLIS_A_BYTE: u64 = 1;

const IMAGE_FORMATS: [&str; 2] = ["url", "b64_json"];
const SPEECH_FORMATS: [&str; 6] = ["mp3", "opus", "aac", "flac", "wav", "pcm"];
const TRANSCRIPT_FORMATS: [&str; 5] = ["json", "text", "srt", "verbose_json", "vtt"];

/// A request's body, found good.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) needs: Needs,
    /// At most; without the input's tokens.
    pub(super) worst: Usage,
    /// Those that came along, and those that were fields.
    pub(super) files: Vec<FilePart>,
}

/// Checks a body's fields and takes the files out of them. `place` is where they lie.
pub(super) fn check(
    operation: Operation,
    input: &mut Map<String, Value>,
    files: Vec<FilePart>,
    place: Place,
    max_output: Option<u64>,
) -> Result<Checked, ApiError> {
    let taken = match operation {
        Operation::Image | Operation::ImageEdit => take_files(input, &["image", "mask"], place)?,
        Operation::Transcription => take_files(input, &["audio", "file"], place)?,
        _ => Vec::new(),
    };
    let files: Vec<FilePart> = files.into_iter().chain(taken).collect();
    let fields = Fields { map: input, place };
    let checked = match operation {
        Operation::Chat => chat(fields, max_output),
        Operation::Completion => completion(fields, max_output),
        Operation::Responses => responses(fields, max_output),
        Operation::Image | Operation::ImageEdit => image(operation, fields, &files, max_output),
        Operation::Speech => speech(fields),
        Operation::Transcription => transcription(fields, &files),
        Operation::Embedding => embedding(fields),
        Operation::Rerank => rerank(fields),
        Operation::Moderation => moderation(fields),
    }?;
    Ok(Checked { files, ..checked })
}

fn chat(fields: Fields<'_>, max_output: Option<u64>) -> Result<Checked, ApiError> {
    check_messages(fields)?;
    let answers = fields.whole("n", 1..=128)?.unwrap_or(1);
    let older = fields.whole("max_tokens", 1..=10_000_000)?;
    let asked = fields.whole("max_completion_tokens", 1..=10_000_000)?.or(older);
    let needs = Needs {
        tools: fields.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()),
        structured: fields.get("response_format").is_some_and(|format| format["type"] == "json_schema"),
        vision: has_images(fields),
        output_tokens: asked,
        ..Needs::default()
    };
    Ok(Checked { needs, worst: tokens(answers, asked, max_output), ..Checked::default() })
}

fn completion(fields: Fields<'_>, max_output: Option<u64>) -> Result<Checked, ApiError> {
    let prompts = texts_or_tokens(fields, "prompt")?;
    let answers = fields.whole("n", 1..=128)?.unwrap_or(1);
    let best_of = fields.whole("best_of", 1..=128)?.unwrap_or(1);
    let asked = fields.whole("max_tokens", 1..=10_000_000)?;
    let needs = Needs { output_tokens: asked, ..Needs::default() };
    let worst = tokens(prompts * answers.max(best_of), asked, max_output);
    Ok(Checked { needs, worst, ..Checked::default() })
}

fn responses(fields: Fields<'_>, max_output: Option<u64>) -> Result<Checked, ApiError> {
    // What refers to an earlier answer would have to go to whoever gave it.
    for stateful in ["background", "previous_response_id", "conversation", "prompt"] {
        fields.refuse(stateful)?;
    }
    match fields.get("input") {
        None => return Err(fields.wrong("input", "is missing; send a text or a list of items")),
        Some(Value::String(text)) if !text.is_empty() => {}
        Some(Value::Array(items)) if !items.is_empty() => {}
        Some(_) => return Err(fields.wrong("input", "must be a text, or a list of at least one item")),
    }
    let asked = fields.whole("max_output_tokens", 1..=10_000_000)?;
    let needs = Needs {
        tools: fields.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()),
        structured: fields.get("text").is_some_and(|text| text["format"]["type"] == "json_schema"),
        vision: fields.get("input").is_some_and(|input| has_part(input, "input_image")),
        output_tokens: asked,
        ..Needs::default()
    };
    Ok(Checked { needs, worst: tokens(1, asked, max_output), ..Checked::default() })
}

fn tokens(answers: u64, asked: Option<u64>, max_output: Option<u64>) -> Usage {
    let each = asked.or(max_output).unwrap_or(DEFAULT_MAX_TOKENS);
    Usage { output_tokens: answers.saturating_mul(each), ..Usage::default() }
}

fn image(
    operation: Operation,
    fields: Fields<'_>,
    files: &[FilePart],
    max_output: Option<u64>,
) -> Result<Checked, ApiError> {
    fields.needed_text("prompt", LONGEST_TEXT)?;
    fields.refuse("stream")?;
    let count = fields.whole("n", 1..=MOST_IMAGES)?.unwrap_or(1);
    fields.word("response_format", &IMAGE_FORMATS)?;
    let size = fields.text("size", 32)?;
    let references = files.iter().filter(|file| file.name == "image").count() as u64;
    if operation == Operation::ImageEdit && references == 0 {
        return Err(fields.wrong("image", "is missing; an edit needs an image"));
    }
    if references > MOST_IMAGES {
        return Err(fields.wrong("image", "may be at most 16 images"));
    }
    let needs = Needs {
        image_edit: operation == Operation::ImageEdit,
        references: references as u32,
        ratio: fields.text("ratio", 32)?.or_else(|| fields.text("aspect_ratio", 32).ok()?).map(Into::into),
        resolution: fields.text("resolution", 32)?.or(size.filter(|size| *size != "auto")).map(Into::into),
        ..Needs::default()
    };
    let worst = Usage { images: count, ..tokens(count, None, max_output) };
    Ok(Checked { needs, worst, ..Checked::default() })
}

fn speech(fields: Fields<'_>) -> Result<Checked, ApiError> {
    let text = fields.needed_text("input", LONGEST_TEXT)?;
    let voice = match fields.get("voice") {
        None => None,
        Some(Value::Object(_)) => None,
        Some(_) => fields.text("voice", 256)?,
    };
    fields.word("response_format", &SPEECH_FORMATS)?;
    fields.number("speed", 0.25..=4.0)?;
    if fields.word("stream_format", &["audio", "sse"])? == Some("sse") {
        return Err(ApiError::unsupported("stream_format"));
    }
    let characters = text.chars().count() as u64;
    let worst =
        Usage { characters, audio_millis: characters.saturating_mul(MILLIS_A_CHARACTER), ..Usage::default() };
    let needs = Needs { voice: voice.map(Into::into), ..Needs::default() };
    Ok(Checked { needs, worst, ..Checked::default() })
}

fn transcription(fields: Fields<'_>, files: &[FilePart]) -> Result<Checked, ApiError> {
    let name = if fields.place == Place::Input { "audio" } else { "file" };
    let [file] = files else {
        let remedy =
            if files.is_empty() { "is missing; send one recording" } else { "must be one recording" };
        return Err(fields.wrong(name, remedy));
    };
    fields.refuse("stream")?;
    fields.word("response_format", &TRANSCRIPT_FORMATS)?;
    fields.text("language", 32)?;
    fields.number("temperature", 0.0..=1.0)?;
    let audio_millis = match &file.source {
        FileSource::Bytes { bytes, .. } if bytes.is_empty() => return Err(fields.wrong(name, "is empty")),
        // A provider may round up, and hear a little more than the header says.
        FileSource::Bytes { bytes, content_type, .. } => duration_millis(bytes, Some(content_type))
            .map(|millis| millis.saturating_add(millis / 10 + 1_000))
            .unwrap_or_else(|| (bytes.len() as u64).saturating_mul(MILLIS_A_BYTE)),
        FileSource::Url(_) => UNKNOWN_RECORDING_MILLIS,
    };
    let worst = Usage { audio_millis, output_tokens: DEFAULT_MAX_TOKENS, ..Usage::default() };
    Ok(Checked { worst, ..Checked::default() })
}

fn embedding(fields: Fields<'_>) -> Result<Checked, ApiError> {
    texts_or_tokens(fields, "input")?;
    fields.whole("dimensions", 1..=1_000_000)?;
    fields.word("encoding_format", &["float", "base64"])?;
    Ok(Checked::default())
}

fn rerank(fields: Fields<'_>) -> Result<Checked, ApiError> {
    fields.needed_text("query", LONGEST_TEXT)?;
    let documents = match fields.get("documents") {
        None => return Err(fields.wrong("documents", "is missing; send a list of texts")),
        Some(Value::Array(documents)) if !documents.is_empty() => documents,
        Some(_) => return Err(fields.wrong("documents", "must be a list of at least one text")),
    };
    if let Some(place) = documents.iter().position(|document| !document.is_string() && !document.is_object())
    {
        return Err(fields.wrong(&format!("documents[{place}]"), "must be a text, or an object with one"));
    }
    fields.whole("top_n", 1..=1_000_000)?;
    let worst = Usage { rerank_units: documents.len() as u64, ..Usage::default() };
    Ok(Checked { worst, ..Checked::default() })
}

fn moderation(fields: Fields<'_>) -> Result<Checked, ApiError> {
    match fields.get("input") {
        None => Err(fields.wrong("input", "is missing; send a text or a list")),
        Some(Value::String(text)) if !text.is_empty() => Ok(Checked::default()),
        Some(Value::Array(list)) if !list.is_empty() => Ok(Checked::default()),
        Some(_) => Err(fields.wrong("input", "must be a text, or a list of at least one item")),
    }
}

/// A text, a list of texts, a list of tokens, or a list of such lists; how many inputs they are.
fn texts_or_tokens(fields: Fields<'_>, name: &str) -> Result<u64, ApiError> {
    let remedy = "must be a text, a list of texts, a list of tokens, or a list of such lists, and not empty";
    let is_tokens = |list: &[Value]| !list.is_empty() && list.iter().all(Value::is_u64);
    let is_input = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => is_tokens(list),
        _ => false,
    };
    match fields.get(name) {
        None => Err(fields.wrong(name, "is missing")),
        Some(Value::String(text)) if !text.is_empty() => Ok(1),
        Some(Value::Array(list)) if is_tokens(list) => Ok(1),
        Some(Value::Array(list)) if !list.is_empty() && list.iter().all(is_input) => Ok(list.len() as u64),
        Some(_) => Err(fields.wrong(name, remedy)),
    }
}

fn check_messages(fields: Fields<'_>) -> Result<(), ApiError> {
    let Some(messages) = fields.get("messages") else {
        return Err(fields.wrong("messages", "is missing; send at least one message"));
    };
    let Some(messages) = messages.as_array().filter(|messages| !messages.is_empty()) else {
        return Err(fields.wrong("messages", "must be a list of at least one message"));
    };
    for (place, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(Value::is_string) {
            let field = format!("messages[{place}].role");
            return Err(fields.wrong(&field, "must be a text such as user, assistant or system"));
        }
    }
    Ok(())
}

fn has_images(fields: Fields<'_>) -> bool {
    let messages = fields.get("messages").and_then(Value::as_array).into_iter().flatten();
    messages.filter_map(|message| message.get("content")).any(|content| has_part(content, "image_url"))
}

/// Whether a list has a part of that type, itself or in the content of its items.
fn has_part(list: &Value, kind: &str) -> bool {
    list.as_array().into_iter().flatten().any(|part| {
        part.get("type").is_some_and(|of| of == kind)
            || part.get("content").is_some_and(|content| has_part(content, kind))
    })
}

/// Takes the files that are fields out of them: URLs, data URLs, or lists of those.
fn take_files(
    input: &mut Map<String, Value>,
    names: &[&str],
    place: Place,
) -> Result<Vec<FilePart>, ApiError> {
    let mut files = Vec::new();
    for name in names {
        let part = if *name == "audio" { "file" } else { *name };
        let mut take = |value: &Value, field: String| {
            let wrong = |remedy| ApiError::invalid(&place.name(&field), remedy);
            let url = value.as_str().or_else(|| value.get("url")?.as_str());
            let url = url.ok_or_else(|| wrong("must be an http or https URL, or a data URL"))?;
            let source = FileSource::parse(url).map_err(wrong)?;
            files.push(FilePart { name: part.to_owned(), source });
            Ok::<_, ApiError>(())
        };
        match input.shift_remove(*name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for (n, value) in list.iter().enumerate() {
                    take(value, format!("{name}[{n}]"))?;
                }
            }
            Some(value) => take(&value, (*name).to_owned())?,
        }
    }
    Ok(files)
}
