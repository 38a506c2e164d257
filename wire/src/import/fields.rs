//! The table of what may be written: sections, their fields, and what each field may hold.

/// A part of the configuration, in the order in which rows can refer to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Who serves.
    Providers,
    /// Upstream credentials.
    Accounts,
    /// Logical models.
    Pools,
    /// Physical models.
    Models,
    /// Backend teams.
    Callers,
}

impl Section {
    /// Every section.
    pub const ALL: [Self; 5] = [Self::Providers, Self::Accounts, Self::Pools, Self::Models, Self::Callers];

    /// The name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::Accounts => "accounts",
            Self::Pools => "pools",
            Self::Models => "models",
            Self::Callers => "callers",
        }
    }

    /// The word for one row.
    pub const fn one(self) -> &'static str {
        match self {
            Self::Providers => "provider",
            Self::Accounts => "account",
            Self::Pools => "pool",
            Self::Models => "model",
            Self::Callers => "caller",
        }
    }

    /// The field that tells rows apart.
    pub const fn identity(self) -> &'static str {
        match self {
            Self::Providers => "key",
            Self::Accounts => "label",
            Self::Pools => "group_key",
            Self::Models | Self::Callers => "name",
        }
    }

    /// The fields that are columns of its table under the same name.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Providers => PROVIDER,
            Self::Accounts => ACCOUNT,
            Self::Pools => POOL,
            Self::Models => MODEL,
            Self::Callers => CALLER,
        }
    }

    /// Further fields, which are rows of other tables or need a look at them.
    pub(super) const fn more(self) -> &'static [&'static str] {
        match self {
            Self::Accounts => &["account_key"],
            Self::Models => &["pool", "routing", "accounts", "api_keys"],
            Self::Callers => &["plan", "credits", "pools"],
            Self::Providers | Self::Pools => &[],
        }
    }
}

/// A field of a row.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in files, in the API, in forms and in its table.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
}

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text up to so many characters.
    Text(usize),
    /// The same, or none.
    OptionalText(usize),
    /// `http://…` or `https://…` that paths are added to: no query, no fragment.
    Url,
    /// The same, or none.
    OptionalUrl,
    /// Yes or no.
    Flag,
    /// A whole number between two.
    Whole(i64, i64),
    /// The same, or none.
    OptionalWhole(i64, i64),
    /// A number between two.
    Real(f64, f64),
    /// Requests a second, or none.
    OptionalRate,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A capability.
    Capability,
    /// A strategy that the engine knows.
    Strategy,
    /// A member's weight.
    Weight,
    /// A member's priority.
    Priority,
    /// An amount of at least 0.
    Money,
    /// The same, or none.
    OptionalMoney,
    /// Prices by unit.
    Prices,
    /// What a model can do.
    Features,
}

/// A checked value, as its column holds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// None.
    Null,
    /// A whole number or a flag.
    Whole(i64),
    /// A number.
    Real(f64),
    /// Text, money, or JSON.
    Text(String),
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind }
}

pub(super) const DAY_MS: i64 = 86_400_000;
pub(super) const MILLION: i64 = 1_000_000;

const PROVIDER: &[Field] = &[
    field("name", Kind::Text(128)),
    field("protocol", Kind::Choice(&["openai", "volcengine_ark", "dashscope", "ollama"])),
    field("base_url", Kind::Url),
    field("proxy_url", Kind::OptionalUrl),
    field("tier", Kind::Choice(&["direct", "preferred", "other"])),
    field("region", Kind::OptionalText(64)),
    field("currency_rate", Kind::Money),
    field("allow_private_network", Kind::Flag),
    field("is_enabled", Kind::Flag),
];

const ACCOUNT: &[Field] = &[
    field("provider", Kind::Text(64)),
    field("max_rps", Kind::OptionalRate),
    field("max_tpm", Kind::OptionalWhole(1, i64::MAX)),
    field("max_concurrency", Kind::OptionalWhole(1, MILLION)),
    field("daily_limit", Kind::OptionalWhole(1, i64::MAX)),
    field("headroom", Kind::Real(0.0, 0.9)),
    field("region", Kind::OptionalText(64)),
    field("is_enabled", Kind::Flag),
];

const POOL: &[Field] = &[
    field("name", Kind::Text(128)),
    field("public_alias", Kind::OptionalText(128)),
    field("capability", Kind::Capability),
    field("strategy", Kind::Strategy),
    field("dynamic_weights", Kind::Flag),
    field("latency_target_ms", Kind::OptionalWhole(1, DAY_MS)),
    field("breaker_policy", Kind::Choice(&["consecutive", "error_rate"])),
    field("circuit_failure_threshold", Kind::Whole(1, 100_000)),
    field("circuit_recovery_seconds", Kind::Whole(1, 86_400)),
    field("recovery_backoff", Kind::Flag),
    field("error_rate_threshold", Kind::Real(0.0, 1.0)),
    field("error_rate_window_seconds", Kind::Whole(1, 86_400)),
    field("error_rate_min_calls", Kind::Whole(1, MILLION)),
    field("error_rate_open_seconds", Kind::Whole(1, 86_400)),
    field("half_open_probes", Kind::Whole(1, 10_000)),
    field("half_open_success_rate", Kind::Real(0.0, 1.0)),
    field("switch_first", Kind::Flag),
    field("retry_unknown", Kind::Flag),
    field("queue_timeout_ms", Kind::Whole(0, DAY_MS)),
    field("queue_max", Kind::OptionalWhole(0, MILLION)),
    field("first_packet_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("idle_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("content_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("min_content_chars", Kind::Whole(0, MILLION)),
    field("fallback_template", Kind::OptionalText(65_536)),
    field("cache", Kind::Choice(&["off", "exact", "semantic"])),
    field("cache_embedding_pool", Kind::OptionalText(64)),
    field("cache_threshold", Kind::Real(0.0, 1.0)),
    field("cache_hit_price", Kind::Money),
    field("store_content", Kind::Flag),
    field("rehost_results", Kind::Flag),
    field("deep_thinking_model", Kind::OptionalText(128)),
    field("region", Kind::OptionalText(64)),
    field("price", Kind::Prices),
    field("budget_daily", Kind::OptionalMoney),
    field("is_active", Kind::Flag),
];

const MODEL: &[Field] = &[
    field("public_alias", Kind::OptionalText(128)),
    field("provider", Kind::Text(64)),
    field("base_url", Kind::OptionalUrl),
    // Empty: the upstream knows it by the model's own name.
    field("upstream_model", Kind::Text(256)),
    field("capability", Kind::Capability),
    field("weight", Kind::Weight),
    field("priority", Kind::Priority),
    field("max_concurrency", Kind::OptionalWhole(1, MILLION)),
    field("is_active", Kind::Flag),
    field("features", Kind::Features),
    field("prices", Kind::Prices),
];

const CALLER: &[Field] = &[field("region", Kind::OptionalText(64)), field("is_enabled", Kind::Flag)];

/// The units in which prices are given.
pub const PRICE_UNITS: [&str; 11] = [
    "per_request",
    "input_per_1m",
    "cached_input_per_1m",
    "cache_write_per_1m",
    "output_per_1m",
    "per_image",
    "per_audio_second",
    "per_video_second",
    "video_tokens_per_1m",
    "per_1k_characters",
    "per_rerank_unit",
];
