//! Members of a pool and the accounts they are bound to: what configuration says of them, beside
//! the state that outlives any edit of it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::breaker::Breaker;
use crate::clock::Moment;
use crate::cooldown::{Cooldown, Reason};
use crate::limits::{Gcra, Rate, Slots};
use crate::outcome::{Class, Failure};
use crate::policy::{BreakerPolicy, CooldownPolicy, Priority, Weight};
use crate::sync::{Arc, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, lock};
use crate::window::{Tally, Window};

/// How long the numbers on a member's row look back.
pub const RECENT: Duration = Duration::from_secs(300);

/// How long an account's requests a second look back.
const RATE_SPAN: Duration = Duration::from_secs(10);

/// The id of a model's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub std::sync::Arc<str>);

/// The id of an account's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub std::sync::Arc<str>);

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a model can do, as far as routing asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// It streams.
    pub stream: bool,
    /// It calls tools.
    pub tools: bool,
    /// It answers in a given JSON shape.
    pub structured: bool,
    /// It thinks before it answers.
    pub thinking: bool,
    /// It sees images.
    pub vision: bool,
}

impl Default for Features {
    /// What a model that declares nothing is taken to do.
    fn default() -> Self {
        Self { stream: true, tools: true, structured: true, thinking: false, vision: true }
    }
}

/// What a request asks of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// A streamed answer.
    pub stream: bool,
    /// Tool calls.
    pub tools: bool,
    /// A given JSON shape.
    pub structured: bool,
    /// Thinking.
    pub thinking: bool,
    /// Images in the input.
    pub vision: bool,
}

impl Needs {
    /// The first thing that `features` lack.
    pub const fn missing_in(self, features: &Features) -> Option<&'static str> {
        if self.stream && !features.stream {
            Some("stream")
        } else if self.tools && !features.tools {
            Some("tools")
        } else if self.structured && !features.structured {
            Some("structured")
        } else if self.thinking && !features.thinking {
            Some("thinking")
        } else if self.vision && !features.vision {
            Some("vision")
        } else {
            None
        }
    }
}

/// A model as a member of a pool.
#[derive(Debug)]
pub struct Member {
    /// The model's id.
    pub model: ModelId,
    /// The model's name.
    pub name: std::sync::Arc<str>,
    /// The provider's key.
    pub provider: std::sync::Arc<str>,
    /// Its share within its tier.
    pub weight: Weight,
    /// Its tier.
    pub priority: Priority,
    /// Calls in flight; `None` = unlimited.
    pub max_concurrency: Option<u32>,
    /// What it can do.
    pub features: Features,
    /// Its provider wants a credential; without any binding it can't serve.
    pub needs_account: bool,
    /// Its accounts, by priority.
    pub accounts: Vec<Binding>,
    /// What outlives an edit.
    pub state: Arc<ModelState>,
}

/// An account as bound to one model.
#[derive(Debug)]
pub struct Binding {
    /// The account.
    pub account: std::sync::Arc<Account>,
    /// Lower is used first; equals take turns.
    pub priority: Priority,
    /// The cooldown of this account at this model alone.
    pub cooldown: Arc<Cooldown>,
}

/// An upstream credential with its limits, shared by many models.
#[derive(Debug)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Its label.
    pub label: std::sync::Arc<str>,
    /// Requests a second, less its headroom; `None` = unlimited.
    pub rate: Option<Rate>,
    /// Calls in flight; `None` = unlimited.
    pub max_concurrency: Option<u32>,
    /// It may be used.
    pub is_enabled: bool,
    /// Counts the replacements of its key.
    pub key_revision: u64,
    /// What outlives an edit.
    pub state: Arc<AccountState>,
}

/// What a model's calls share, whatever the configuration says today.
#[derive(Debug)]
pub struct ModelState {
    /// Its breaker.
    pub breaker: Breaker,
    /// Its calls in flight.
    pub in_flight: Slots,
    /// Set aside as a whole: keyless, or at fault with every account.
    pub cooldown: Cooldown,
    turn: AtomicUsize,
    bindings: Mutex<HashMap<AccountId, Arc<Cooldown>>>,
    recent: Mutex<Window>,
    last_failure: Mutex<Option<(Moment, Failure)>>,
}

impl ModelState {
    /// Closed, idle, not cooling.
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            breaker: Breaker::new(policy),
            in_flight: Slots::new(),
            cooldown: Cooldown::new(),
            turn: AtomicUsize::new(0),
            bindings: Mutex::new(HashMap::new()),
            recent: Mutex::new(Window::new(RECENT)),
            last_failure: Mutex::new(None),
        }
    }

    /// The cooldown of `account` at this model.
    pub fn binding_cooldown(&self, account: &AccountId) -> Arc<Cooldown> {
        lock(&self.bindings).entry(account.clone()).or_insert_with(|| Arc::new(Cooldown::new())).clone()
    }

    /// Calls and failures of the last five minutes.
    pub fn recent(&self, now: Moment) -> Tally {
        lock(&self.recent).tally(now)
    }

    /// The last failure and when it was.
    pub fn last_failure(&self) -> Option<(Moment, Failure)> {
        lock(&self.last_failure).clone()
    }

    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn record(&self, now: Moment, failure: Option<&Failure>) {
        lock(&self.recent).record(now, failure.is_some());
        if let Some(failure) = failure {
            *lock(&self.last_failure) = Some((now, failure.clone()));
        }
    }
}

/// What an account's calls share, whatever the configuration says today.
#[derive(Debug)]
pub struct AccountState {
    /// Its rate.
    pub rate: Gcra,
    /// Its calls in flight.
    pub in_flight: Slots,
    /// Set aside at every model.
    pub cooldown: Cooldown,
    key_revision: AtomicU64,
    refusals: AtomicU32,
    /// µs; 0 = never.
    last_used: AtomicU64,
    recent: Mutex<Window>,
    last_failure: Mutex<Option<(Moment, Failure)>>,
}

impl AccountState {
    /// Idle, not cooling.
    pub fn new(key_revision: u64) -> Self {
        Self {
            rate: Gcra::default(),
            in_flight: Slots::new(),
            cooldown: Cooldown::new(),
            key_revision: AtomicU64::new(key_revision),
            refusals: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            recent: Mutex::new(Window::new(RATE_SPAN)),
            last_failure: Mutex::new(None),
        }
    }

    /// Requests a second, over the last ten.
    pub fn requests_per_second(&self, now: Moment) -> f64 {
        lock(&self.recent).tally(now).calls as f64 / RATE_SPAN.as_secs_f64()
    }

    /// When it was last used, if it was.
    pub fn last_used(&self) -> Option<Moment> {
        Some(Moment::from_micros(self.last_used.load(Ordering::Acquire))).filter(|at| *at > Moment::default())
    }

    /// Its last failure and when it was.
    pub fn last_failure(&self) -> Option<(Moment, Failure)> {
        lock(&self.last_failure).clone()
    }

    /// A call with it begins.
    pub(crate) fn used(&self, now: Moment) {
        self.last_used.store(now.as_micros(), Ordering::Release);
        lock(&self.recent).record(now, false);
    }

    /// A call with it failed, and the caller is not to blame.
    pub(crate) fn failed(&self, now: Moment, failure: &Failure) {
        *lock(&self.last_failure) = Some((now, failure.clone()));
    }

    /// A new key starts without the old one's cooldown and without its doubling.
    pub fn use_key(&self, revision: u64) {
        if self.key_revision.fetch_max(revision, Ordering::AcqRel) < revision {
            self.refusals.store(0, Ordering::Release);
            self.cooldown.clear();
        }
    }

    /// The newest revision of its key.
    pub fn key_revision(&self) -> u64 {
        self.key_revision.load(Ordering::Acquire)
    }

    /// The key was accepted: the doubling starts anew.
    pub(crate) fn accepted(&self) {
        if self.refusals.load(Ordering::Relaxed) != 0 {
            self.refusals.store(0, Ordering::Release);
        }
    }

    /// How long the key is set aside this time: doubles with each refusal.
    fn refused(&self, policy: &CooldownPolicy) -> Duration {
        let before = self.refusals.fetch_add(1, Ordering::AcqRel);
        policy.auth.saturating_mul(2_u32.saturating_pow(before.min(20))).min(policy.auth_max)
    }
}

impl Member {
    /// Sets aside what `failure` blames. `binding` is the place of the account that was used, and
    /// `key_revision` the key's at that time: the failure of an older key cools nothing.
    ///
    /// Returns what cools, and until when.
    pub(crate) fn cool(
        &self,
        failure: &Failure,
        binding: Option<&Binding>,
        key_revision: u64,
        policy: &CooldownPolicy,
        now: Moment,
    ) -> Option<Moment> {
        let account = binding.map(|binding| &binding.account.state);
        if account.is_some_and(|account| account.key_revision() > key_revision) {
            return None;
        }
        // Two refusals of calls that were out together are one refusal.
        if failure.class == Class::Auth && account.is_some_and(|account| account.cooldown.is_cooling(now)) {
            return None;
        }
        let span = match failure.class {
            Class::RateLimited => failure.retry_after.unwrap_or(policy.rate_limited),
            Class::Auth => account.map_or(policy.auth, |account| account.refused(policy)),
            Class::Quota => policy.quota,
            Class::Misconfigured => policy.misconfigured,
            Class::NotSent if self.accounts.len() > 1 => policy.connect,
            _ => return None,
        };
        let cooldown = match (failure.class, binding) {
            (Class::RateLimited | Class::Misconfigured, Some(binding)) => &*binding.cooldown,
            (_, Some(binding)) => &binding.account.state.cooldown,
            (_, None) => &self.state.cooldown,
        };
        let until = now + span;
        cooldown.set(Reason { class: failure.class, message: failure.message.clone(), since: now, until });
        Some(until)
    }
}
