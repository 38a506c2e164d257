//! What became of an attempt: usage, and the classes of failure with what each of them does
//! (the table of "What went wrong" in the engine's design).

use std::fmt;
use std::time::Duration;

use crate::breaker::Verdict;

/// What an answer consumed, in disjoint buckets: no unit is counted in two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that no cache served.
    pub input_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Images made.
    pub images: u64,
    /// Audio heard or made, in milliseconds.
    pub audio_millis: u64,
    /// Characters spoken.
    pub characters: u64,
    /// Rerank units, as the provider counts them.
    pub rerank_units: u64,
    /// The upstream reported nothing; the tokens are bytes ÷ 4.
    pub estimated: bool,
}

impl Usage {
    /// Nothing.
    pub const NONE: Self = Self {
        input_tokens: 0,
        cached_input_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 0,
        images: 0,
        audio_millis: 0,
        characters: 0,
        rerank_units: 0,
        estimated: false,
    };

    /// All tokens, in and out: what a provider's tokens a minute count.
    pub const fn all_tokens(&self) -> u64 {
        self.all_input_tokens().saturating_add(self.output_tokens)
    }

    /// All input tokens, whatever served them.
    pub const fn all_input_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cached_input_tokens).saturating_add(self.cache_write_tokens)
    }

    /// For an upstream that reports nothing: four bytes to a token, rounded up.
    pub const fn estimate(input_bytes: u64, output_bytes: u64) -> Self {
        Self {
            input_tokens: input_bytes.div_ceil(4),
            output_tokens: output_bytes.div_ceil(4),
            estimated: true,
            ..Self::NONE
        }
    }
}

/// Why an attempt failed, and so who is to blame for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request never left: DNS, refused, unreachable, TLS, connect time-out.
    NotSent,
    /// The account has used up a rate for now.
    RateLimited,
    /// The account's key is not accepted.
    Auth,
    /// The account has no credit left.
    Quota,
    /// The model does not exist there, or this account may not use it.
    Misconfigured,
    /// The upstream refused for a reason of its own.
    Upstream,
    /// The upstream may have done the work, and billed it; we can't tell.
    Unknown,
    /// A 200 that answers nothing.
    BadAnswer,
    /// The caller's request is at fault.
    Request,
    /// The content is not allowed there.
    Policy,
}

impl Class {
    /// Every class, in the order of the design's table.
    pub const ALL: [Self; 10] = [
        Self::NotSent,
        Self::RateLimited,
        Self::Auth,
        Self::Quota,
        Self::Misconfigured,
        Self::Upstream,
        Self::Unknown,
        Self::BadAnswer,
        Self::Request,
        Self::Policy,
    ];

    /// The name in tables, logs, metrics and on pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::RateLimited => "rate_limited",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Misconfigured => "misconfigured",
            Self::Upstream => "upstream",
            Self::Unknown => "unknown",
            Self::BadAnswer => "bad_answer",
            Self::Request => "request",
            Self::Policy => "policy",
        }
    }

    /// What the breaker hears of it: only what blames the model counts.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::NotSent | Self::Upstream | Self::Unknown | Self::BadAnswer => Verdict::Failure,
            Self::RateLimited
            | Self::Auth
            | Self::Quota
            | Self::Misconfigured
            | Self::Request
            | Self::Policy => Verdict::Uncounted,
        }
    }

    /// The account is to blame, so another account of the same model may serve.
    pub const fn blames_account(self) -> bool {
        matches!(self, Self::RateLimited | Self::Auth | Self::Quota | Self::Misconfigured)
    }

    /// Waiting would change nothing: the next member is asked at once, whatever the pool prefers.
    pub const fn switches_at_once(self) -> bool {
        self.blames_account() || matches!(self, Self::NotSent)
    }

    /// The caller is to blame: nobody else is asked, and the caller is told.
    pub const fn blames_caller(self) -> bool {
        matches!(self, Self::Request | Self::Policy)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed attempt as its adapter understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub class: Class,
    /// The upstream's HTTP status, where there was one.
    pub http_status: Option<u16>,
    /// For the operator: short, and without any secret.
    pub message: String,
    /// For the caller, with a class that blames the caller: the parameter at fault.
    pub param: Option<String>,
    /// With [`Class::Request`]: it is only too long for this model, and one with a larger context may
    /// take it.
    pub exceeds_context: bool,
    /// When the upstream said to come back.
    pub retry_after: Option<Duration>,
    /// What the upstream billed all the same.
    pub billed: Option<Box<Usage>>,
}

impl Failure {
    /// A failure without any of the optional parts.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            http_status: None,
            message: message.into(),
            param: None,
            exceeds_context: false,
            retry_after: None,
            billed: None,
        }
    }

    /// With the upstream's HTTP status.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }

    /// With what the upstream billed all the same.
    #[must_use]
    pub fn with_billed(mut self, usage: Option<Usage>) -> Self {
        self.billed = usage.map(Box::new);
        self
    }

    /// With the time after which the upstream wants to be asked again.
    #[must_use]
    pub const fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.retry_after = after;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Failure {}
