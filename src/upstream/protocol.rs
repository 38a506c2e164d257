//! The protocols that upstreams speak. All of them speak OpenAI's for the most part; what each does in
//! its own way is in a file of its own.

use forebay_engine::{Class, Failure, Usage};
use reqwest::{Client, Url};
use serde_json::{Map, Value};

use super::call::{Call, Secret};
use super::files::{self, same_host};
use super::{ark, dashscope, guard, multipart, ollama, openai};
use crate::catalog::{ModelTarget, Provider};
use crate::exchange::{Ask, Operation};

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// OpenAI's, as hundreds speak it.
    OpenAi,
    /// Volcengine Ark's: images with fields of its own; its speech API.
    Ark,
    /// DashScope's: rerank.
    DashScope,
    /// Ollama's: no key.
    Ollama,
}

/// An answer in OpenAI's shape, and what it consumed where that is said.
#[derive(Debug)]
pub(super) struct Understood {
    pub(super) body: Map<String, Value>,
    pub(super) usage: Option<Usage>,
}

impl Protocol {
    pub(super) fn of(provider: &Provider) -> Self {
        match provider.protocol.as_str() {
            "volcengine_ark" => Self::Ark,
            "dashscope" => Self::DashScope,
            "ollama" => Self::Ollama,
            _ => Self::OpenAi,
        }
    }

    /// Where `operation` is asked for, if `model` may be asked at all.
    pub(super) fn endpoint(self, model: &ModelTarget, operation: Operation) -> Result<Url, Failure> {
        let misconfigured = |why: String| Failure::new(Class::Misconfigured, why);
        let written = model.base_url.as_deref().unwrap_or(&model.provider.base_url);
        let base = written.trim_end_matches('/');
        let (base, path) = match (self, operation) {
            (Self::Ark, Operation::Image | Operation::ImageEdit) => (base.to_owned(), "images/generations"),
            (Self::Ark, Operation::Speech) => (base.to_owned(), ark::SPEECH_PATH),
            (Self::DashScope, Operation::Rerank) => (dashscope::native(base), dashscope::RERANK_PATH),
            _ => (self.base(base), openai::path(operation)),
        };
        let url: Url =
            format!("{base}/{path}").parse().map_err(|error| misconfigured(format!("base_url: {error}")))?;
        let allowed = model.provider.allow_private_network && same_host(&url, &model.provider.base_url);
        guard::check_url(&url, allowed).map_err(|refusal| misconfigured(format!("base_url: {refusal}")))?;
        Ok(url)
    }

    /// Below which its OpenAI-compatible endpoints lie.
    pub(super) fn base(self, written: &str) -> String {
        let written = written.trim_end_matches('/');
        match self {
            Self::DashScope => dashscope::compatible(written),
            Self::Ollama => ollama::compatible(written),
            Self::OpenAi | Self::Ark => written.to_owned(),
        }
    }

    /// The request is a form with files.
    pub(super) const fn wants_files(self, ask: &Ask) -> bool {
        match ask.operation {
            Operation::ImageEdit => !matches!(self, Self::Ark),
            Operation::Transcription => true,
            _ => false,
        }
    }

    /// The request as a form. Files at an address are fetched with `stranger`, which reaches public hosts
    /// only.
    pub(super) async fn form(
        self,
        model: &ModelTarget,
        ask: &Ask,
        stranger: &Client,
    ) -> Result<Call, Failure> {
        let files = files::collect(stranger, &ask.files).await?;
        multipart::form(&model.upstream_model, &ask.input, openai::named(files)).await
    }

    /// The request, in JSON.
    pub(super) fn call(
        self,
        model: &ModelTarget,
        ask: &Ask,
        stream: bool,
        secret: &Secret,
    ) -> Result<Call, Failure> {
        match (self, ask.operation) {
            (Self::Ark, Operation::Image | Operation::ImageEdit) => Ok(ark::image(model, ask)),
            (Self::Ark, Operation::Speech) => ark::speech(model, ask, secret),
            (Self::DashScope, Operation::Rerank) => Ok(dashscope::rerank(model, ask)),
            _ => Ok(openai::call(model, ask, stream, self.thinking_field(ask))),
        }
    }

    /// How a model is told to think, where the protocol has a word for it.
    fn thinking_field(self, ask: &Ask) -> Option<&'static str> {
        if !ask.thinking || ask.operation != Operation::Chat {
            return None;
        }
        match self {
            Self::Ark if !ask.input.contains_key("thinking") => Some(r#""thinking":{"type":"enabled"}"#),
            Self::DashScope if !ask.input.contains_key("enable_thinking") => {
                Some(r#""enable_thinking":true"#)
            }
            _ => None,
        }
    }

    /// A whole answer, brought into OpenAI's shape.
    pub(super) fn understand(self, ask: &Ask, body: Map<String, Value>) -> Result<Understood, Failure> {
        match (self, ask.operation) {
            (Self::DashScope, Operation::Rerank) => openai::understand(ask, dashscope::answer(body)),
            _ => openai::understand(ask, body),
        }
    }

    /// Whether a file comes as JSON that holds it, and not as itself.
    pub(super) const fn wraps_files(self) -> bool {
        matches!(self, Self::Ark)
    }
}
