//! Accounts: what configuration says of an upstream credential, beside the state that outlives any
//! edit of it.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::cooldown::Cooldown;
use crate::day::Day;
use crate::limits::{Gcra, Rate, Slots, TokenBucket};
use crate::outcome::Failure;
use crate::policy::CooldownPolicy;
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::window::Window;

/// How long an account's requests a second look back.
const RATE_SPAN: Duration = Duration::from_secs(10);

/// The id of an account's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub std::sync::Arc<str>);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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
    /// Tokens a minute, less its headroom; `None` = unlimited.
    pub max_tpm: Option<u64>,
    /// Requests sent in one day, less its headroom; `None` = unlimited.
    pub daily_limit: Option<u64>,
    /// Members of a task's region use accounts of that region first.
    pub region: Option<std::sync::Arc<str>>,
    /// It may be used.
    pub is_enabled: bool,
    /// Counts the replacements of its key.
    pub key_revision: u64,
    /// What outlives an edit.
    pub state: Arc<AccountState>,
}

/// What an account's calls share, whatever the configuration says today.
#[derive(Debug)]
pub struct AccountState {
    /// Its rate.
    pub rate: Gcra,
    /// Its tokens a minute.
    pub tokens: TokenBucket,
    /// Its calls in flight.
    pub in_flight: Slots,
    /// Set aside at every model.
    pub cooldown: Cooldown,
    key_revision: AtomicU64,
    refusals: AtomicU32,
    /// µs; 0 = never.
    last_used: AtomicU64,
    traffic: Mutex<Traffic>,
    last_failure: Mutex<Option<(Moment, Failure)>>,
}

#[derive(Debug)]
struct Traffic {
    recent: Window,
    day: Day,
}

impl AccountState {
    /// Idle, not cooling.
    pub fn new(key_revision: u64) -> Self {
        Self {
            rate: Gcra::default(),
            tokens: TokenBucket::default(),
            in_flight: Slots::new(),
            cooldown: Cooldown::new(),
            key_revision: AtomicU64::new(key_revision),
            refusals: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            traffic: Mutex::new(Traffic { recent: Window::new(RATE_SPAN), day: Day::default() }),
            last_failure: Mutex::new(None),
        }
    }

    /// Requests a second, over the last ten.
    pub fn requests_per_second(&self, now: Moment) -> f64 {
        lock(&self.traffic).recent.tally(now).calls as f64 / RATE_SPAN.as_secs_f64()
    }

    /// Requests sent in the day of `now`.
    pub fn requests_today(&self, now: Moment) -> u64 {
        lock(&self.traffic).day.used(now)
    }

    /// When the day of `now` ends, and with it what its `daily_limit` counts.
    pub fn day_ends(&self, now: Moment) -> Moment {
        lock(&self.traffic).day.ends(now)
    }

    /// What the record of the day says: `used` requests sent, and when the day ends. May be told as
    /// often as one likes: the larger count of the same day wins. Once `ends` has passed, a new day of
    /// 24 hours begins by itself.
    pub fn start_day(&self, used: u64, ends: Moment) {
        lock(&self.traffic).day.start(used, ends);
    }

    /// What an operator's clear-cooldown does: it is used again at once, and the next refusal of its
    /// key is taken for the first.
    pub fn forgive(&self) {
        self.refusals.store(0, Ordering::Release);
        self.cooldown.clear();
    }

    /// When it was last used, if it was.
    pub fn last_used(&self) -> Option<Moment> {
        Some(Moment::from_micros(self.last_used.load(Ordering::Acquire))).filter(|at| *at > Moment::default())
    }

    /// Its last failure and when it was.
    pub fn last_failure(&self) -> Option<(Moment, Failure)> {
        lock(&self.last_failure).clone()
    }

    /// A call with it begins, unless that would be more than `daily_limit` in one day. Returns the end
    /// of the day, either way.
    pub(crate) fn try_use(&self, daily_limit: Option<u64>, now: Moment) -> Result<Moment, Moment> {
        let mut traffic = lock(&self.traffic);
        if daily_limit.is_some_and(|limit| traffic.day.used(now) >= limit) {
            return Err(traffic.day.ends(now));
        }
        self.last_used.store(now.as_micros(), Ordering::Release);
        traffic.recent.record(now, false);
        Ok(traffic.day.count(now))
    }

    /// A call that was counted in the day that ends at `ends` was never sent.
    pub(crate) fn unused(&self, ends: Moment) {
        lock(&self.traffic).day.give_back(ends);
    }

    /// Until when `limit` requests a day keep it from being used, if they do.
    pub(crate) fn used_up_until(&self, limit: u64, now: Moment) -> Option<Moment> {
        let day = lock(&self.traffic).day;
        (day.used(now) >= limit).then(|| day.ends(now))
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
    pub(crate) fn refused(&self, policy: &CooldownPolicy) -> Duration {
        let before = self.refusals.fetch_add(1, Ordering::AcqRel);
        policy.auth.saturating_mul(2_u32.saturating_pow(before.min(20))).min(policy.auth_max)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_of_a_day_is_taken_only_once_however_many_saw_that_it_was_left() {
        let (state, now) = (AccountState::new(1), Moment::from_millis(1_700_000_000_000));
        let ends = now + Duration::from_secs(60);
        state.start_day(4, ends);
        assert_eq!(state.used_up_until(5, now), None);
        assert_eq!(state.try_use(Some(5), now), Ok(ends));
        assert_eq!(state.try_use(Some(5), now), Err(ends));
        assert_eq!(state.requests_today(now), 5, "what was refused is not counted");
        assert_eq!(state.used_up_until(5, now), Some(ends));
        state.unused(ends);
        assert_eq!(state.try_use(Some(5), now), Ok(ends));
    }
}
