//! Members of a pool: what configuration says of them, beside the state that outlives any edit of it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::account::{Account, AccountId};
use crate::breaker::Breaker;
use crate::clock::Moment;
use crate::cooldown::{Cooldown, Reason};
use crate::costs::Costs;
use crate::features::Features;
use crate::latency::Latency;
use crate::limits::Slots;
use crate::outcome::{Class, Failure};
use crate::policy::{BreakerPolicy, CooldownPolicy, Priority, Weight};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::window::{Tally, Window};

/// How long the numbers on a member's row look back.
pub const RECENT: Duration = Duration::from_secs(300);

/// The id of a model's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub std::sync::Arc<str>);

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    /// What it costs the platform.
    pub costs: Costs,
    /// Tasks of that region go to it first, within its tier.
    pub region: Option<std::sync::Arc<str>>,
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

/// What a model's calls share, whatever the configuration says today.
#[derive(Debug)]
pub struct ModelState {
    /// Its breaker.
    pub breaker: Breaker,
    /// Its calls in flight.
    pub in_flight: Slots,
    /// Set aside as a whole: keyless, or at fault with every account.
    pub cooldown: Cooldown,
    /// How long its successes took.
    pub latency: Latency,
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
            latency: Latency::new(),
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
