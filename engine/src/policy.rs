//! The settings that the engine obeys, as types that can't hold a wrong value.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A value that a setting can't have; the text says what it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

/// The key that callers route by: 1–64 of `a–z A–Z 0–9 _ - . :`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(Arc<str>);

impl GroupKey {
    /// What metrics and events say where a model was asked for without any pool.
    pub fn none() -> Self {
        Self("-".into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let fits = !text.is_empty()
            && text.len() <= 64
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(Invalid("must be 1 to 64 letters, digits, '_', '-', '.' or ':'"))
        }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A member's share among the members of its tier: 1 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// The default.
    pub const ONE: Self = Self(1);

    /// Refuses 0: a member that shall get nothing is deactivated instead.
    pub fn try_new(weight: i64) -> Result<Self, Invalid> {
        match u32::try_from(weight) {
            Ok(fit @ 1..=1_000_000) => Ok(Self(fit)),
            _ => Err(Invalid(
                "must be between 1 and 1000000; to give a model no traffic, set is_active to false",
            )),
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which comes first: the lower number, 0 being the default and the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u32);

impl Priority {
    /// 0 to 1,000,000.
    pub fn try_new(priority: i64) -> Result<Self, Invalid> {
        match u32::try_from(priority) {
            Ok(fit @ 0..=1_000_000) => Ok(Self(fit)),
            _ => Err(Invalid("must be between 0 and 1000000; lower is used first")),
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A kind of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Chat completions.
    Text,
    /// Images from text, and edits.
    Image,
    /// Speech from text.
    Audio,
    /// Video, asynchronous.
    Video,
    /// Vectors from text.
    Embedding,
    /// Documents ordered by relevance.
    Rerank,
    /// Content safety.
    Moderation,
    /// Text from speech.
    Speech2text,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 8] = [
        Self::Text,
        Self::Image,
        Self::Audio,
        Self::Video,
        Self::Embedding,
        Self::Rerank,
        Self::Moderation,
        Self::Speech2text,
    ];

    /// The name in the API, in tables and on pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Embedding => "embedding",
            Self::Rerank => "rerank",
            Self::Moderation => "moderation",
            Self::Speech2text => "speech2text",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Capability {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|capability| capability.as_str() == text).ok_or(Invalid(
            "must be one of text, image, audio, video, embedding, rerank, moderation, speech2text",
        ))
    }
}

/// How a member is chosen among those of its tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Proportional to weight.
    #[default]
    WeightedRandom,
    /// Each in turn.
    RoundRobin,
    /// Of any two, the one whose latency × (calls in flight + 1) is smaller.
    LeastLatency,
    /// The cheapest for the request's shape; equally cheap ones proportional to weight.
    LowestCost,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::WeightedRandom, Self::RoundRobin, Self::LeastLatency, Self::LowestCost];

    /// The name in the API, in tables and on pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WeightedRandom => "weighted_random",
            Self::RoundRobin => "round_robin",
            Self::LeastLatency => "least_latency",
            Self::LowestCost => "lowest_cost",
        }
    }
}

impl FromStr for Strategy {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == text)
            .ok_or(Invalid("must be one of weighted_random, round_robin, least_latency, lowest_cost"))
    }
}

/// When a breaker trips and how it recovers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerPolicy {
    /// Failures in a row that open it; at least 1.
    pub failure_threshold: u32,
    /// How long it stays open before a probe is let through.
    pub recovery: Duration,
    /// Each failed probe doubles the open time, up to ten times `recovery`.
    pub backoff: bool,
    /// The `error_rate` policy, which applies besides the threshold.
    pub error_rate: Option<ErrorRatePolicy>,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { failure_threshold: 5, recovery: Duration::from_secs(60), backoff: false, error_rate: None }
    }
}

/// Trips on the share of failures among the calls of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorRatePolicy {
    /// Opens when the share is above this; 0–1.
    pub threshold: f64,
    /// The window.
    pub window: Duration,
    /// Fewer calls than this in the window trip nothing.
    pub min_calls: u32,
    /// How long it stays open.
    pub open: Duration,
    /// Probes let through half-open; at least 1.
    pub probes: u32,
    /// The share of them that must succeed; 0–1.
    pub success_rate: f64,
}

impl Default for ErrorRatePolicy {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            window: Duration::from_secs(60),
            min_calls: 20,
            open: Duration::from_secs(300),
            probes: 10,
            success_rate: 0.9,
        }
    }
}

/// A pool's settings as far as the engine obeys them.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPolicy {
    /// How a member is chosen within a tier.
    pub strategy: Strategy,
    /// `weighted_random` draws by weights that follow error rate and latency.
    pub dynamic_weights: bool,
    /// The latency at which a dynamic weight stays as it is; `None` = the median of the members'.
    pub latency_target: Option<Duration>,
    /// Its members' breakers.
    pub breaker: BreakerPolicy,
    /// After a definite failure ask another member before the same one again.
    pub switch_first: bool,
    /// Treat an unknown outcome as a definite failure (text only: a duplicate sentence costs cents).
    pub retry_unknown: bool,
    /// Where one model was asked for by name: after a definite failure of it, another one may serve.
    /// Of no effect where a pool was asked for.
    pub fallback_on_failure: bool,
    /// How long a request may wait for room.
    pub queue_timeout: Duration,
    /// How many may wait; `None` = 2 × the pool's concurrency, at most 10,000.
    pub queue_max: Option<u32>,
    /// Until a stream's first content, headers and waiting included.
    pub first_packet_timeout: Duration,
    /// A committed stream without a byte for so long is dead.
    pub idle_timeout: Duration,
    /// A committed stream without content for so long is dead.
    pub content_timeout: Duration,
}

impl Default for PoolPolicy {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            dynamic_weights: false,
            latency_target: None,
            breaker: BreakerPolicy::default(),
            switch_first: true,
            retry_unknown: false,
            fallback_on_failure: false,
            queue_timeout: Duration::from_millis(2_000),
            queue_max: None,
            first_packet_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            content_timeout: Duration::from_secs(180),
        }
    }
}

/// How often and how long one capability is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries of the task's first model.
    pub retries: u32,
    /// The wait before each retry; the last one serves any further.
    pub waits: Vec<Duration>,
    /// One attempt, whole.
    pub attempt: Duration,
    /// One attempt, streamed, until its first content.
    pub stream_attempt: Duration,
    /// All attempts and waits together.
    pub total: Duration,
}

impl RetryPolicy {
    /// The defaults of `capability` (the table of "Retry, then fallback" in the engine's design).
    pub fn of(capability: Capability) -> Self {
        let secs = Duration::from_secs;
        let (waits, attempt, stream_attempt, total): (&[u64], _, _, _) = match capability {
            Capability::Text => (&[1, 3], secs(120), secs(300), secs(480)),
            Capability::Image => (&[3], secs(300), secs(300), secs(900)),
            Capability::Audio => (&[2], secs(60), secs(60), secs(180)),
            Capability::Video => (&[3], secs(120), secs(120), secs(300)),
            Capability::Embedding | Capability::Rerank | Capability::Moderation | Capability::Speech2text => {
                (&[1, 3], secs(60), secs(60), secs(180))
            }
        };
        Self {
            retries: waits.len() as u32,
            waits: waits.iter().copied().map(secs).collect(),
            attempt,
            stream_attempt,
            total,
        }
    }

    /// The wait before retry number `done + 1`.
    pub fn wait(&self, done: u32) -> Duration {
        self.waits.get(done as usize).or(self.waits.last()).copied().unwrap_or_default()
    }
}

/// How long an account or a model is set aside, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CooldownPolicy {
    /// A 429 without Retry-After.
    pub rate_limited: Duration,
    /// The first refusal of a key; doubles with each further one.
    pub auth: Duration,
    /// Where that doubling ends.
    pub auth_max: Duration,
    /// No connection, where the model has another account.
    pub connect: Duration,
    /// No credit.
    pub quota: Duration,
    /// Model unknown or not open to the account.
    pub misconfigured: Duration,
}

impl Default for CooldownPolicy {
    fn default() -> Self {
        Self {
            rate_limited: Duration::from_secs(60),
            auth: Duration::from_secs(10),
            auth_max: Duration::from_secs(3_600),
            connect: Duration::from_secs(10),
            quota: Duration::from_secs(3_600),
            misconfigured: Duration::from_secs(300),
        }
    }
}

/// The routing settings of the whole installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    retry: [RetryPolicy; Capability::ALL.len()],
    /// Models that one task may try: 1–3; [`Routing::models`] is what holds.
    pub max_models: u32,
    /// Requests that one task may send: 1–5; [`Routing::requests`] is what holds.
    pub max_requests: u32,
    /// The share of a pool's recent traffic that retries may add, besides ten a second.
    pub retry_budget: f64,
    /// Cooldowns by class.
    pub cooldown: CooldownPolicy,
}

impl Routing {
    /// The retry policy of `capability`.
    pub const fn retry(&self, capability: Capability) -> &RetryPolicy {
        &self.retry[capability as usize]
    }

    /// Models that one task may try: never more than three, whatever the setting says.
    pub fn models(&self) -> u32 {
        self.max_models.clamp(1, 3)
    }

    /// Requests that one task may send: never more than five, whatever the setting says.
    pub fn requests(&self) -> u32 {
        self.max_requests.clamp(1, 5)
    }

    /// Changes the retry policy of `capability`.
    pub fn set_retry(&mut self, capability: Capability, policy: RetryPolicy) {
        self.retry[capability as usize] = policy;
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            retry: Capability::ALL.map(RetryPolicy::of),
            max_models: 3,
            max_requests: 5,
            retry_budget: 0.2,
            cooldown: CooldownPolicy::default(),
        }
    }
}
