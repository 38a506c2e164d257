//! What every port shares: its error, its future, and the words that more than one page uses.
//!
//! The ports themselves are traits in `pools::port`, `accounts::port`, `tasks::port` and
//! `session::port`. The server half implements them; a `#[server]` function authorises the operator
//! and then calls one of them. This crate knows neither the engine nor the store.

use leptos::prelude::{FromServerFnError, ServerFnErrorErr};
use leptos::server_fn::codec::JsonEncoding;
use serde::{Deserialize, Serialize};

/// What a port method returns: boxed, so that ports can be used as `dyn` traits.
#[cfg(feature = "ssr")]
pub type PortFuture<'a, T> =
    std::pin::Pin<Box<dyn std::future::Future<Output = Result<T, PortError>> + Send + 'a>>;

/// Why a port could not do what it was asked. Crosses to the browser as JSON; `ui::text` turns it
/// into a sentence that says what to do. No variant may carry a key, a password or a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortError {
    /// No operator is signed in, or the session has ended.
    #[error("not signed in")]
    Unauthorized,
    /// The operator is a viewer and this needs an admin.
    #[error("not allowed")]
    Forbidden,
    /// Name or password is wrong; which of the two is never said.
    #[error("wrong name or password")]
    WrongPassword,
    /// Too many wrong passwords from this address or for this name.
    #[error("too many tries, wait {wait_seconds} s")]
    Throttled {
        /// How long to wait before the next try is looked at.
        wait_seconds: u64,
    },
    /// The console was opened at another scheme or host than FOREBAY_PUBLIC_URL says, so that the
    /// browser would drop the session cookie.
    #[error("this console is served at {expected}")]
    WrongAddress {
        /// FOREBAY_PUBLIC_URL.
        expected: String,
    },
    /// A field of the form can't be taken as it is.
    #[error("{field}: {message}")]
    Invalid {
        /// The field's name, as in the DTO.
        field: String,
        /// What would be right.
        message: String,
    },
    /// The change contradicts what is there: a duplicate, or something still in use.
    #[error("{message}")]
    Conflict {
        /// What it collides with.
        message: String,
    },
    /// The thing named does not exist (any more).
    #[error("{what} does not exist")]
    NotFound {
        /// What was looked for: `pool main_text`.
        what: String,
    },
    /// The store or a part of the server can't answer now.
    #[error("{message}")]
    Unavailable {
        /// What is away.
        message: String,
    },
    /// The browser could not reach the server. Made in the browser only.
    #[error("no connection to the server")]
    Offline,
}

impl PortError {
    /// A field of a form that can't be taken, and what would be right.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }

    /// The change contradicts what is there.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::Conflict { message: message.into() }
    }

    /// The thing named does not exist.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound { what: what.into() }
    }

    /// A part of the server can't answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into() }
    }
}

impl FromServerFnError for PortError {
    type Encoder = JsonEncoding;

    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        match error {
            ServerFnErrorErr::Request(_) => Self::Offline,
            ServerFnErrorErr::Args(message) | ServerFnErrorErr::MissingArg(message) => {
                Self::invalid("form", message)
            }
            other => Self::unavailable(other.to_string()),
        }
    }
}

/// An instant, with its texts made by the server, so that server and browser render the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Milliseconds since the epoch, UTC.
    pub ms: i64,
    /// In FOREBAY_TIME_ZONE, `2026-11-30 02:10:03`.
    pub text: String,
    /// The same in UTC, `2026-11-29T18:10:03.123Z`; shown on hover.
    pub utc: String,
}

/// What kind of work a pool, a model or a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Chat completions and their kin.
    Text,
    /// Images, made or edited.
    Image,
    /// Speech made from text.
    Audio,
    /// Text made from speech.
    Speech2text,
    /// Vectors.
    Embedding,
    /// Documents put in order.
    Rerank,
    /// Content judged.
    Moderation,
    /// Video, always asynchronous.
    Video,
}

impl Capability {
    /// Every capability, in the order of the console's selects.
    pub const ALL: [Self; 8] = [
        Self::Text,
        Self::Image,
        Self::Audio,
        Self::Speech2text,
        Self::Embedding,
        Self::Rerank,
        Self::Moderation,
        Self::Video,
    ];

    /// The word of the API and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Speech2text => "speech2text",
            Self::Embedding => "embedding",
            Self::Rerank => "rerank",
            Self::Moderation => "moderation",
            Self::Video => "video",
        }
    }

    /// The capability of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == word)
    }
}

/// Whether a request is the operator's doing or the page's own poll: only the former keeps a
/// session from going idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// The operator did something.
    Acting,
    /// The page refreshes itself.
    Watching,
}

/// An account or a whole model set aside until a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooldown {
    /// The account's label; none when the cooldown lies on the model itself.
    pub account: Option<String>,
    /// The model, when only this account × model pair cools; none for the whole account.
    pub model: Option<String>,
    /// The error class that caused it: `rate_limited`, `auth`, `quota`, `misconfigured`, `not_sent`.
    pub reason: String,
    /// Milliseconds left at the time of the answer.
    pub left_ms: i64,
}

/// The last failure of a model or an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// When it happened.
    pub at: Moment,
    /// Its error class.
    pub class: String,
    /// The upstream's status, where there was one.
    pub http_status: Option<u16>,
    /// The upstream's message, redacted.
    pub message: String,
}

/// An empty form field is no value, not an error. Only the server reads forms.
#[cfg(feature = "ssr")]
pub(crate) fn blank_is_none<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text: Option<Loose> = Option::deserialize(from)?;
    let text = text.map(|Loose(text)| text).unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(serde::de::Error::custom)
}

/// A form sends text, JSON sends numbers: both are read as text.
#[cfg(feature = "ssr")]
struct Loose(String);

#[cfg(feature = "ssr")]
impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Loose;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("text or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose(text.to_owned()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Loose, E> {
                Ok(Loose(number.to_string()))
            }
        }
        from.deserialize_any(Visitor)
    }
}
