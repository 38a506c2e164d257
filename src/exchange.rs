//! What the gateway and the upstreams say to each other, so that neither has to know the other.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use forebay_engine::policy::Capability;
use forebay_engine::stream::EventSource;
use forebay_engine::{AccountId, Failure, ModelId, Upstream, Usage};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

/// What is asked for: each is an endpoint of OpenAI's API (rerank is Jina's and Cohere's), and each
/// upstream protocol has its own way to ask it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// chat/completions.
    Chat,
    /// completions, the older shape.
    Completion,
    /// responses.
    Responses,
    /// images/generations.
    Image,
    /// images/edits.
    ImageEdit,
    /// audio/speech.
    Speech,
    /// audio/transcriptions.
    Transcription,
    /// embeddings.
    Embedding,
    /// rerank.
    Rerank,
    /// moderations.
    Moderation,
}

impl Operation {
    /// What a pool must generate to serve it.
    pub const fn capability(self) -> Capability {
        match self {
            Self::Chat | Self::Completion | Self::Responses => Capability::Text,
            Self::Image | Self::ImageEdit => Capability::Image,
            Self::Speech => Capability::Audio,
            Self::Transcription => Capability::Speech2text,
            Self::Embedding => Capability::Embedding,
            Self::Rerank => Capability::Rerank,
            Self::Moderation => Capability::Moderation,
        }
    }

    /// The word in tables and in the API: `generate`, but where a capability has several.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Responses => "response",
            Self::ImageEdit => "edit",
            _ => "generate",
        }
    }

    /// The operation of that word.
    pub fn of(capability: Capability, word: &str) -> Option<Self> {
        [
            Self::Chat,
            Self::Completion,
            Self::Responses,
            Self::Image,
            Self::ImageEdit,
            Self::Speech,
            Self::Transcription,
            Self::Embedding,
            Self::Rerank,
            Self::Moderation,
        ]
        .into_iter()
        .find(|operation| operation.capability() == capability && operation.as_str() == word)
    }

    /// The answer is a file, passed on as it comes.
    pub const fn answers_a_file(self) -> bool {
        matches!(self, Self::Speech)
    }
}

/// What is asked of an upstream.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What for.
    pub operation: Operation,
    /// The body's fields but `model`, `stream` and `stream_options`, in OpenAI's shape.
    pub input: Arc<Map<String, Value>>,
    /// The same as JSON without its braces: written once, sent to whichever member is asked.
    pub fields: Bytes,
    /// Files that come with it.
    pub files: Arc<[FilePart]>,
    /// The caller wants the model to think.
    pub thinking: bool,
    /// Characters below which a text is no answer.
    pub min_content_chars: usize,
    /// What it consumes at most, as its hold was reckoned.
    pub worst: Usage,
}

impl Ask {
    /// From a body's fields; no files, nothing else asked.
    pub fn new(operation: Operation, input: Arc<Map<String, Value>>) -> Self {
        Self {
            operation,
            fields: fields(&input),
            input,
            files: Arc::new([]),
            thinking: false,
            min_content_chars: 1,
            worst: Usage::default(),
        }
    }
}

/// A map as JSON without its braces.
pub fn fields(input: &Map<String, Value>) -> Bytes {
    let json = Bytes::from(serde_json::to_vec(input).unwrap_or_default());
    let inner = 1..json.len().saturating_sub(1);
    if inner.is_empty() { Bytes::new() } else { json.slice(inner) }
}

/// A file of a request: an image to edit, a recording to transcribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The field it came in: `image`, `mask`, `file`.
    pub name: String,
    /// Where its content is.
    pub source: FileSource,
}

/// Where a file's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// Here.
    Bytes {
        /// What the caller called it.
        file_name: String,
        /// `image/png`, `audio/mpeg` …
        content_type: String,
        /// The content.
        bytes: Bytes,
    },
    /// At this address, to be fetched by whoever needs it.
    Url(String),
}

impl FileSource {
    /// From a `data:` URL, whose content must be base64, or from a web address.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        if url.starts_with("http://") || url.starts_with("https://") {
            return Ok(Self::Url(url.to_owned()));
        }
        let (head, data) = url
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(','))
            .ok_or("must be an http or https URL, or a data URL")?;
        let kind = head.strip_suffix(";base64").ok_or("must be a data URL in base64")?;
        let bytes = STANDARD.decode(data.trim()).map_err(|_| "is a data URL whose base64 is broken")?;
        let content_type =
            kind.split(';').next().filter(|kind| !kind.is_empty()).unwrap_or("application/octet-stream");
        let extension = content_type.rsplit('/').next().unwrap_or("bin");
        Ok(Self::Bytes {
            file_name: format!("file.{extension}"),
            content_type: content_type.to_owned(),
            bytes: bytes.into(),
        })
    }

    /// As a URL: the address, or a `data:` URL of the content.
    pub fn to_url(&self) -> String {
        match self {
            Self::Url(url) => url.clone(),
            Self::Bytes { content_type, bytes, .. } => {
                format!("data:{content_type};base64,{}", STANDARD.encode(bytes))
            }
        }
    }

    /// How many bytes it has, where it is here.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Bytes { bytes, .. } => Some(bytes.len() as u64),
            Self::Url(_) => None,
        }
    }
}

/// One step of a streamed answer.
#[derive(Debug)]
pub enum StreamEvent {
    /// A chunk of a chat completion, or of an older completion.
    Chunk {
        /// The chunk, as the upstream wrote it.
        chunk: Map<String, Value>,
        /// It carries usage and nothing else: passed on only if the caller asked for usage.
        usage_only: bool,
    },
    /// An event of the Responses API.
    Response(Map<String, Value>),
    /// A piece of a file.
    Bytes(Bytes),
}

/// A streamed answer.
pub trait AnswerStream: EventSource<Event = StreamEvent> {
    /// The usage that was reported, or else an estimate from the bytes that went by.
    fn usage(&self, ask: &Usage) -> Usage;

    /// The upstream's own id.
    fn provider_task_id(&self) -> Option<String>;

    /// Of a file: what it is.
    fn content_type(&self) -> Option<&str>;
}

/// A file fetched from an upstream.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// What it says it is.
    pub content_type: Option<String>,
    /// The content.
    pub bytes: Bytes,
}

/// Whoever answers.
pub trait ModelUpstream: Upstream<Request = Ask, Answer = Map<String, Value>, Stream: AnswerStream> {
    /// Fetches what `model` put at `url`, of at most `cap` bytes, under the guard against forged
    /// addresses.
    fn fetch(
        &self,
        model: &ModelId,
        url: &str,
        cap: usize,
    ) -> impl Future<Output = Result<Fetched, Failure>> + Send;
}

/// What a small call that an operator asked for came to.
#[derive(Clone, Debug)]
pub struct Tried {
    /// How long it took.
    pub took: Duration,
    /// What it said, or why not.
    pub result: Result<Value, Failure>,
}

/// Makes small calls for operators: past the breaker and the limits, kept by no ledger.
pub trait Trial: Send + Sync + 'static {
    /// One call to `model`, with `account` or the first that can be used.
    fn try_model<'a>(&'a self, model: &'a ModelId, account: Option<&'a AccountId>) -> BoxFuture<'a, Tried>;
}

/// The least that a capability can be asked for, as the `input` of /api/generate; `None` for what goes
/// on after its request has ended.
pub fn smallest_input(capability: Capability) -> Option<Value> {
    Some(match capability {
        Capability::Text => json!({"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 8}),
        Capability::Image => json!({"prompt": "a grey square"}),
        Capability::Audio => json!({"input": "OK.", "voice": "alloy"}),
        Capability::Embedding => json!({"input": "OK"}),
        Capability::Rerank => json!({"query": "OK", "documents": ["OK", "no"]}),
        Capability::Moderation => json!({"input": "OK"}),
        Capability::Speech2text => json!({"audio": silence().to_url()}),
        Capability::Video => return None,
    })
}

/// A tenth of a second of nothing, as a WAV file.
fn silence() -> FileSource {
    const RATE: u32 = 8_000;
    const SAMPLES: u32 = RATE / 10;
    let mut wav = Vec::with_capacity(44 + SAMPLES as usize);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + SAMPLES).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16_u32.to_le_bytes());
    // PCM, one channel, eight bits a sample.
    for half in [1_u16, 1] {
        wav.extend_from_slice(&half.to_le_bytes());
    }
    for word in [RATE, RATE] {
        wav.extend_from_slice(&word.to_le_bytes());
    }
    for half in [1_u16, 8] {
        wav.extend_from_slice(&half.to_le_bytes());
    }
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&SAMPLES.to_le_bytes());
    wav.resize(wav.len() + SAMPLES as usize, 128);
    FileSource::Bytes { file_name: "silence.wav".into(), content_type: "audio/wav".into(), bytes: wav.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(input: &Value) -> Ask {
        Ask::new(Operation::Chat, Arc::new(input.as_object().expect("an object").clone()))
    }

    #[test]
    fn fields_are_json_without_its_braces() {
        let asked = ask(&serde_json::json!({"messages": [{"role": "user"}], "n": {"a": 1}}));
        assert_eq!(&asked.fields[..], br#""messages":[{"role":"user"}],"n":{"a":1}"#);
        assert!(ask(&serde_json::json!({})).fields.is_empty());
    }

    #[test]
    fn a_file_comes_from_a_web_address_or_from_base64_and_goes_back() {
        let here = FileSource::parse("data:image/png;base64,AQID").expect("a data URL");
        assert_eq!(here.size(), Some(3));
        assert_eq!(here.to_url(), "data:image/png;base64,AQID");
        let there = FileSource::parse("https://example.com/a.png").expect("an address");
        assert_eq!(there, FileSource::Url("https://example.com/a.png".into()));
        for wrong in ["data:image/png;base64,***", "data:text/plain,hi", "file:///etc/passwd", "a.png", ""] {
            assert!(FileSource::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_operation_is_found_by_its_word_within_its_capability() {
        assert_eq!(Operation::of(Capability::Image, "edit"), Some(Operation::ImageEdit));
        assert_eq!(Operation::of(Capability::Text, "generate"), Some(Operation::Chat));
        assert_eq!(Operation::of(Capability::Text, "edit"), None);
        assert_eq!(Operation::of(Capability::Video, "generate"), None);
    }
}
