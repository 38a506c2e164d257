//! Pools: what crosses to the browser, and the server functions of the page.

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::port::{Capability, Cooldown, LastError, Moment, PortError};

#[cfg(feature = "ssr")]
use {
    super::port::PoolsPort,
    crate::port::{Presence, blank_is_none},
    crate::session::api::{Role, authorise},
    std::sync::Arc,
};

/// One pool in the list: what stands still. What moves is in [`LivePool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolCard {
    /// `group_key`, by which callers route.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// What its members do.
    pub capability: Capability,
    /// Off: callers get `not_found`.
    pub is_active: bool,
    /// How a member is chosen inside a tier.
    pub strategy: Strategy,
    /// Members, inactive ones too.
    pub members: u32,
    /// Members in rotation.
    pub active_members: u32,
    /// Sum over the active members; none when one of them has no limit.
    pub total_concurrency: Option<u64>,
    /// Failures in a row that open a breaker.
    pub circuit_failure_threshold: u32,
    /// How long an open breaker waits before its probe.
    pub circuit_recovery_seconds: u32,
}

/// Everything on the page that moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveView {
    /// When the server answered.
    pub at: Moment,
    /// The sums of every pool.
    pub pools: Vec<LivePool>,
    /// The members of the pools that were named.
    pub models: Vec<LiveModel>,
}

/// The sums of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivePool {
    /// `group_key`.
    pub key: String,
    /// Active members by breaker state.
    pub closed: u32,
    /// Active members whose breaker is half-open.
    pub half_open: u32,
    /// Active members whose breaker is open.
    pub open: u32,
    /// Active members that can't be picked now because of a cooldown.
    pub cooling: u32,
    /// Upstream calls in flight.
    pub in_flight: u64,
    /// Attempts of the last five minutes.
    pub calls: u64,
    /// Of those, the failed ones (unknown outcomes too).
    pub failed: u64,
}

/// What moves about one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveModel {
    /// The model's name.
    pub model: String,
    /// The `group_key` of its pool.
    pub pool: String,
    /// Its breaker.
    pub breaker: BreakerView,
    /// Upstream calls in flight.
    pub in_flight: u64,
    /// Effective weight in thousandths: 6,000 where the weight is 6 and nothing lowers it.
    pub effective_weight_milli: u64,
    /// Attempts of the last five minutes.
    pub calls: u64,
    /// Of those, the failed ones.
    pub failed: u64,
    /// What is set aside: its accounts, or the model itself.
    pub cooldowns: Vec<Cooldown>,
    /// Its last failure.
    pub last_error: Option<LastError>,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Probes pass.
    HalfOpen,
    /// Nothing passes.
    Open,
}

/// A breaker, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerView {
    /// Its state.
    pub state: BreakerState,
    /// Opened by an operator, or because the model can't serve at all.
    pub forced: bool,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// Milliseconds until the probe, at the time of the answer; Open only.
    pub open_left_ms: Option<i64>,
    /// When it came into this state, if it ever changed.
    pub since: Option<Moment>,
    /// Why it came into this state: `5 failures in a row (upstream)`.
    pub cause: Option<String>,
    /// Counts the changes of state.
    pub generation: u64,
}

/// A pool with everything about it that stands still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolDetail {
    /// As in the list.
    pub card: PoolCard,
    /// Its settings.
    pub settings: PoolEdit,
    /// Its members, by priority, then name.
    pub members: Vec<MemberRow>,
}

/// One member: what stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// The model's name.
    pub model: String,
    /// The provider's key.
    pub provider: String,
    /// What the provider calls it.
    pub upstream_model: String,
    /// Share inside its tier, 1 or more.
    pub weight: u32,
    /// Tier; the lowest number is used first.
    pub priority: i64,
    /// In rotation.
    pub is_active: bool,
    /// Calls at once; none is unlimited.
    pub max_concurrency: Option<u32>,
    /// Its bindings, by priority.
    pub accounts: Vec<MemberAccount>,
}

/// An account bound to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAccount {
    /// The account's label.
    pub label: String,
    /// The lowest number is used first; equal ones take turns.
    pub priority: i64,
    /// Enabled.
    pub is_enabled: bool,
}

/// How a member is chosen inside a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Proportional to effective weight.
    #[default]
    WeightedRandom,
    /// In turn.
    RoundRobin,
    /// The quickest of two.
    LeastLatency,
    /// The cheapest for the request.
    LowestCost,
}

impl Strategy {
    /// Every strategy, in the order of the console's select.
    pub const ALL: [Self; 4] = [Self::WeightedRandom, Self::RoundRobin, Self::LeastLatency, Self::LowestCost];

    /// The word of the API and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WeightedRandom => "weighted_random",
            Self::RoundRobin => "round_robin",
            Self::LeastLatency => "least_latency",
            Self::LowestCost => "lowest_cost",
        }
    }
}

/// What opens a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerPolicy {
    /// Failures in a row.
    #[default]
    Consecutive,
    /// The share of failures in a window; failures in a row as well.
    ErrorRate,
}

impl BreakerPolicy {
    /// Every policy, in the order of the console's select.
    pub const ALL: [Self; 2] = [Self::Consecutive, Self::ErrorRate];

    /// The word of the API and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Consecutive => "consecutive",
            Self::ErrorRate => "error_rate",
        }
    }
}

/// The settings of a pool, as the form shows and sends them. Names, units and defaults are those
/// of the API's pool settings; `Default` is a pool that nobody has tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolEdit {
    /// Name for people.
    pub name: String,
    /// Name that callers may use as `model`, besides the key.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub public_alias: Option<String>,
    /// Serves callers.
    #[serde(default)]
    pub is_active: bool,
    /// Preferred region where neither request nor caller names one.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub region: Option<String>,
    /// How a member is chosen inside a tier.
    pub strategy: Strategy,
    /// Weights follow errors and latency.
    #[serde(default)]
    pub dynamic_weights: bool,
    /// What dynamic weights measure latency against; none is the pool's median.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub latency_target_ms: Option<u32>,
    /// What opens a breaker.
    pub breaker_policy: BreakerPolicy,
    /// Failures in a row that open a breaker.
    pub circuit_failure_threshold: u32,
    /// How long an open breaker waits before its probe.
    pub circuit_recovery_seconds: u32,
    /// Each failed probe doubles the wait, up to ten times.
    #[serde(default)]
    pub recovery_backoff: bool,
    /// Share of failures that opens a breaker, 0 to 1; `error_rate` only.
    pub error_rate_threshold: f64,
    /// Window of that share.
    pub error_rate_window_seconds: u32,
    /// Calls in the window below which the share says nothing.
    pub error_rate_min_calls: u32,
    /// How long a breaker opened by the share stays open.
    pub error_rate_open_seconds: u32,
    /// Probes a half-open breaker admits; `error_rate` only.
    pub half_open_probes: u32,
    /// Share of probes that must succeed, 0 to 1.
    pub half_open_success_rate: f64,
    /// Another member before a retry of the same one.
    #[serde(default)]
    pub switch_first: bool,
    /// Send again when the outcome is unknown; text only.
    #[serde(default)]
    pub retry_unknown: bool,
    /// How long a request waits while all members are full.
    pub queue_timeout_ms: u32,
    /// How many may wait; none is twice the pool's concurrency.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub queue_max: Option<u32>,
    /// Stream: until the first content.
    pub first_packet_timeout_ms: u32,
    /// Stream: without a byte.
    pub idle_timeout_ms: u32,
    /// Stream: without content.
    pub content_timeout_ms: u32,
    /// Shorter answers count as bad.
    pub min_content_chars: u32,
    /// Text given when every member answered badly; uncharged.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub fallback_template: Option<String>,
    /// The model that `thinking: true` goes to first.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub deep_thinking_model: Option<String>,
}

impl Default for PoolEdit {
    fn default() -> Self {
        Self {
            name: String::new(),
            public_alias: None,
            is_active: true,
            region: None,
            strategy: Strategy::default(),
            dynamic_weights: false,
            latency_target_ms: None,
            breaker_policy: BreakerPolicy::default(),
            circuit_failure_threshold: 5,
            circuit_recovery_seconds: 60,
            recovery_backoff: false,
            error_rate_threshold: 0.5,
            error_rate_window_seconds: 60,
            error_rate_min_calls: 20,
            error_rate_open_seconds: 300,
            half_open_probes: 10,
            half_open_success_rate: 0.9,
            switch_first: true,
            retry_unknown: false,
            queue_timeout_ms: 2_000,
            queue_max: None,
            first_packet_timeout_ms: 60_000,
            idle_timeout_ms: 60_000,
            content_timeout_ms: 180_000,
            min_content_chars: 1,
            fallback_template: None,
            deep_thinking_model: None,
        }
    }
}

/// How a member takes part in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEdit {
    /// Share inside its tier, 1 or more.
    pub weight: u32,
    /// Tier; the lowest number is used first.
    pub priority: i64,
    /// In rotation.
    #[serde(default)]
    pub is_active: bool,
}

/// What a dry run of picks came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockPick {
    /// How many picks were made.
    pub n: u32,
    /// Picks of each member that was picked at all, most first.
    pub picked: Vec<PickCount>,
    /// Members that could not be picked, and why.
    pub excluded: Vec<PickRefusal>,
}

/// How often a member was picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickCount {
    /// The model's name.
    pub model: String,
    /// How often.
    pub picks: u32,
}

/// Why a member was not picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PickRefusal {
    /// The model's name.
    pub model: String,
    /// A word of the engine: `breaker_open`, `cooldown`, `inactive`, `full`, `lower_tier`, …
    pub reason: String,
}

/// The page in one answer: every pool, and the one that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolsView {
    /// Every pool.
    pub cards: Vec<PoolCard>,
    /// What moves, with the members of the open one.
    pub live: LiveView,
    /// The open one, if it exists.
    pub open: Option<PoolDetail>,
}

/// The page, with the pool `open` in full.
#[server]
pub async fn load_pools(open: Option<String>) -> Result<PoolsView, PortError> {
    authorise(Role::Viewer, Presence::Acting).await?;
    let pools = pools();
    let members_of: Vec<String> = open.into_iter().collect();
    let detail = match members_of.first() {
        None => None,
        Some(key) => match pools.pool(key).await {
            Err(PortError::NotFound { .. }) => None,
            found => Some(found?),
        },
    };
    Ok(PoolsView { cards: pools.list().await?, live: pools.live(&members_of).await?, open: detail })
}

/// What moves, with the members of the pool `open`. Asked every five seconds.
#[server]
pub async fn watch_pools(open: Option<String>) -> Result<LiveView, PortError> {
    authorise(Role::Viewer, Presence::Watching).await?;
    let members_of: Vec<String> = open.into_iter().collect();
    pools().live(&members_of).await
}

/// Replaces the settings of a pool; gives its key back.
#[server]
pub async fn edit_pool(key: String, edit: PoolEdit) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    pools().edit(&operator, &key, &edit).await?;
    Ok(key)
}

/// Changes weight, priority and rotation of a member; gives its name back.
#[server]
pub async fn set_member(model: String, edit: MemberEdit) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    pools().set_member(&operator, &model, edit).await?;
    Ok(model)
}

/// Closes the breaker of a model; gives its name back.
#[server]
pub async fn reset_breaker(model: String) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    pools().reset_breaker(&operator, &model).await?;
    Ok(model)
}

/// Closes the breakers of all members of a pool; says how many were not Closed.
#[server]
pub async fn reset_breakers(key: String) -> Result<u32, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    pools().reset_all(&operator, &key).await
}

/// Opens the breaker of a model; gives its name back.
#[server]
pub async fn force_open(model: String, seconds: u32) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    if seconds == 0 {
        return Err(PortError::invalid("seconds", "1 or more"));
    }
    pools().force_open(&operator, &model, seconds).await?;
    Ok(model)
}

/// Picks `n` times as things stand now and calls nobody.
#[server]
pub async fn run_mock_pick(key: String, n: u32) -> Result<MockPick, PortError> {
    authorise(Role::Viewer, Presence::Acting).await?;
    if !(1..=10_000).contains(&n) {
        return Err(PortError::invalid("n", "1 to 10,000"));
    }
    pools().mock_pick(&key, n).await
}

#[cfg(feature = "ssr")]
fn pools() -> Arc<dyn PoolsPort> {
    expect_context()
}
