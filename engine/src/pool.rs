//! A pool as the engine routes by it, and the ports through which it reads configuration and state.

use std::collections::HashMap;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::account::{AccountId, AccountState};
use crate::clock::Moment;
use crate::costs::Rates;
use crate::member::{Member, ModelId, ModelState};
use crate::policy::{BreakerPolicy, Capability, GroupKey, PoolPolicy, Priority, Routing};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::weights::{Dynamic, Factors};
use crate::window::Window;

/// The port for configuration: always the newest, so that a retry sees an edit.
pub trait Directory: Send + Sync + 'static {
    /// The active pool of that key.
    fn pool(&self, key: &GroupKey) -> Option<StdArc<Pool>>;

    /// One active model, as a pool of itself alone: for old callers that name a model.
    fn model(&self, model: &ModelId) -> Option<StdArc<Pool>>;

    /// The models that may serve where `model` was asked for by name and has failed, each as a pool of
    /// itself alone, in the order in which they are to be tried. Asked anew for every fallback.
    fn candidates(&self, model: &ModelId, capability: Capability) -> Vec<StdArc<Pool>> {
        let _ = (model, capability);
        Vec::new()
    }

    /// The routing settings.
    fn routing(&self) -> StdArc<Routing>;
}

/// The port for state that outlives configuration: one per process, or shared by all nodes.
pub trait State: Send + Sync + 'static {
    /// The state of a model; a new one starts Closed.
    fn model(&self, id: &ModelId, policy: BreakerPolicy) -> Arc<ModelState>;

    /// The state of an account.
    fn account(&self, id: &AccountId, key_revision: u64) -> Arc<AccountState>;

    /// The state of a pool.
    fn pool(&self, key: &GroupKey) -> Arc<PoolState>;

    /// Where those wait who find everything full.
    fn room(&self) -> &Room;
}

/// A logical model: tiers of members, and the policy by which one is chosen.
#[derive(Debug)]
pub struct Pool {
    /// What callers route by.
    pub key: GroupKey,
    /// What it generates.
    pub capability: Capability,
    /// Its settings.
    pub policy: PoolPolicy,
    /// What outlives an edit.
    pub state: Arc<PoolState>,
    pub(crate) tiers: Vec<Tier>,
    /// With dynamic weights, and somebody to share with.
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) room: Room,
}

/// The members of one priority; beside them, so that a choice among many reads few cache lines, the
/// running sums of their weights and their rates.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    pub(crate) members: Vec<StdArc<Member>>,
    pub(crate) sums: Vec<u64>,
    pub(crate) rates: Vec<Rates>,
}

impl Tier {
    fn total(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }
}

impl Pool {
    /// Sorts `members` into tiers and applies the policy to their breakers.
    pub fn new(
        key: GroupKey,
        capability: Capability,
        policy: PoolPolicy,
        mut members: Vec<Member>,
        state: &dyn State,
    ) -> Self {
        members.sort_by(|a, b| a.priority.cmp(&b.priority).then_with(|| a.name.cmp(&b.name)));
        let mut tiers: Vec<(Priority, Tier)> = Vec::new();
        for mut member in members {
            member.accounts.sort_by_key(|binding| binding.priority);
            member.state.breaker.configure(policy.breaker);
            if tiers.last().is_none_or(|(priority, _)| *priority != member.priority) {
                tiers.push((member.priority, Tier::default()));
            }
            if let Some((_, tier)) = tiers.last_mut() {
                tier.sums.push(tier.total() + u64::from(member.weight.get()));
                tier.rates.push(member.costs.rates());
                tier.members.push(StdArc::new(member));
            }
        }
        let tiers: Vec<_> = tiers.into_iter().map(|(_, tier)| tier).collect();
        let shares = policy.dynamic_weights && tiers.iter().any(|tier| tier.members.len() > 1);
        Self {
            state: state.pool(&key),
            room: state.room().clone(),
            dynamic: shares.then(|| Dynamic::new(&tiers)),
            key,
            capability,
            policy,
            tiers,
        }
    }

    /// Its members, best tier first.
    pub fn members(&self) -> impl Iterator<Item = &StdArc<Member>> {
        self.tiers.iter().flat_map(|tier| &tier.members)
    }

    /// The sum of its members' `max_concurrency`; `None` = unlimited. No counter of its own guards
    /// it: as each member keeps its limit, the sum is kept.
    pub fn max_concurrency(&self) -> Option<u32> {
        self.members()
            .try_fold(0_u32, |sum, member| member.max_concurrency.map(|limit| sum.saturating_add(limit)))
    }

    /// How many may wait for room.
    pub fn queue_max(&self) -> u32 {
        self.policy
            .queue_max
            .unwrap_or_else(|| self.max_concurrency().map_or(10_000, |sum| sum.saturating_mul(2).min(10_000)))
    }

    /// Members that could be picked now.
    pub fn active_channels(&self, now: Moment) -> usize {
        self.members()
            .filter(|member| member.state.breaker.admits(now) && !member.state.cooldown.is_cooling(now))
            .count()
    }
}

/// What outlives a pool's edits: the queue, the turn, the retry budget, and the way that its dynamic
/// weights have come.
#[derive(Debug)]
pub struct PoolState {
    turn: AtomicUsize,
    waiting: AtomicUsize,
    /// Fair: whoever holds it is at the head of the queue.
    pub(crate) head: tokio::sync::Mutex<()>,
    budget: Mutex<Budget>,
    pub(crate) factors: Mutex<Factors>,
}

#[derive(Debug)]
struct Budget {
    first: Window,
    extra: Window,
}

/// The span over which the retry budget is reckoned.
const BUDGET_SPAN: Duration = Duration::from_secs(10);
/// Requests a second that the retry budget allows whatever the traffic.
const BUDGET_FLOOR: f64 = 10.0;

impl PoolState {
    /// Nobody waiting, a full budget.
    pub fn new() -> Self {
        Self {
            turn: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            head: tokio::sync::Mutex::new(()),
            budget: Mutex::new(Budget { first: Window::new(BUDGET_SPAN), extra: Window::new(BUDGET_SPAN) }),
            factors: Mutex::default(),
        }
    }

    /// How many wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Joins the queue, unless `max` wait already.
    pub(crate) fn join(state: &Arc<Self>, max: u32) -> Option<Place> {
        if state.waiting.fetch_add(1, Ordering::AcqRel) >= max as usize {
            state.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Place(state.clone()))
    }

    /// Counts a task's first request: the traffic that the budget is a share of.
    pub(crate) fn count_first(&self, now: Moment) {
        lock(&self.budget).first.record(now, false);
    }

    /// Spends one further request, if `share` of the recent traffic plus the floor allows it.
    pub(crate) fn spend(&self, share: f64, now: Moment) -> bool {
        let mut budget = lock(&self.budget);
        let traffic = budget.first.tally(now).calls as f64;
        let spent = budget.extra.tally(now).calls as f64;
        let allowed = spent < traffic * share + BUDGET_FLOOR * BUDGET_SPAN.as_secs_f64();
        if allowed {
            budget.extra.record(now, false);
        }
        allowed
    }
}

impl Default for PoolState {
    fn default() -> Self {
        Self::new()
    }
}

/// A place in a pool's queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Place(Arc<PoolState>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where the heads of the queues wait: opened whenever something may have become free.
#[derive(Clone, Debug, Default)]
pub struct Room(StdArc<Notify>);

impl Room {
    /// Tells everyone at the head of a queue to look again.
    pub fn open(&self) {
        self.0.notify_waiters();
    }

    pub(crate) fn opened(&self) -> Notified<'_> {
        self.0.notified()
    }
}

/// State in this process alone.
#[derive(Debug, Default)]
pub struct LocalState {
    models: std::sync::Mutex<HashMap<ModelId, Arc<ModelState>>>,
    accounts: std::sync::Mutex<HashMap<AccountId, Arc<AccountState>>>,
    pools: std::sync::Mutex<HashMap<GroupKey, Arc<PoolState>>>,
    room: Room,
}

impl LocalState {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl State for LocalState {
    fn model(&self, id: &ModelId, policy: BreakerPolicy) -> Arc<ModelState> {
        entry(&self.models, id, || ModelState::new(policy))
    }

    fn account(&self, id: &AccountId, key_revision: u64) -> Arc<AccountState> {
        let state = entry(&self.accounts, id, || AccountState::new(key_revision));
        state.use_key(key_revision);
        state
    }

    fn pool(&self, key: &GroupKey) -> Arc<PoolState> {
        entry(&self.pools, key, PoolState::new)
    }

    fn room(&self) -> &Room {
        &self.room
    }
}

fn entry<K: Clone + Eq + std::hash::Hash, V>(
    map: &std::sync::Mutex<HashMap<K, Arc<V>>>,
    key: &K,
    make: impl FnOnce() -> V,
) -> Arc<V> {
    let mut map = map.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = map.get(key) {
        return known.clone();
    }
    let made = Arc::new(make());
    map.insert(key.clone(), made.clone());
    made
}
