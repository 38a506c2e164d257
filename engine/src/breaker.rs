//! The breaker of one model: closed → open → half-open → closed.
//!
//! Every state has a *generation*. A permit carries the generation that gave it, and a result of an
//! older generation changes nothing, not even a probe slot. A probe that never ends is reclaimed
//! after its lease, and reclaiming starts a new generation: no breaker stays half-open for ever.

use std::fmt;
use std::time::Duration;

use crate::clock::Moment;
use crate::policy::BreakerPolicy;
use crate::random::Random;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::window::{Tally, Window};

/// What a finished call says of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It served.
    Success,
    /// It failed, and the model is to blame.
    Failure,
    /// Nothing about the model can be learned from it.
    Uncounted,
}

/// The state, as shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// No call goes through.
    Open,
    /// Probes go through.
    HalfOpen,
}

impl BreakerState {
    /// The name in the API, in tables and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too many failures in a row.
    FailuresInARow,
    /// Too large a share of failures.
    ErrorRate,
    /// The open time is over.
    RecoveryElapsed,
    /// A probe failed.
    ProbeFailed,
    /// Enough probes succeeded.
    ProbesSucceeded,
    /// Probes did not end within their lease.
    LeaseExpired,
    /// An operator forced it open.
    Forced,
    /// An operator reset it.
    Reset,
}

impl Cause {
    /// The name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailuresInARow => "failures_in_a_row",
            Self::ErrorRate => "error_rate",
            Self::RecoveryElapsed => "recovery_elapsed",
            Self::ProbeFailed => "probe_failed",
            Self::ProbesSucceeded => "probes_succeeded",
            Self::LeaseExpired => "lease_expired",
            Self::Forced => "forced",
            Self::Reset => "reset",
        }
    }
}

/// One change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: BreakerState,
    /// The state after.
    pub to: BreakerState,
    /// Why.
    pub cause: Cause,
    /// The generation that begins with it.
    pub generation: u64,
    /// When.
    pub at: Moment,
}

/// Leave to make one call, given in one generation.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    generation: u64,
    probe: bool,
}

impl Ticket {
    /// The generation that gave it.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// It is one of the few that a half-open breaker lets through.
    pub const fn is_probe(&self) -> bool {
        self.probe
    }
}

/// A breaker at a moment, for pages and metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerView {
    /// Its state.
    pub state: BreakerState,
    /// Failures in a row, while closed.
    pub consecutive_failures: u32,
    /// Calls and failures of the policy's window.
    pub recent: Tally,
    /// While open: when a probe will be let through; [`Moment::NEVER`] when forced open without end.
    pub open_until: Option<Moment>,
    /// An operator forced it open.
    pub forced: bool,
    /// The generation of its state.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed { failures: u32, since: Moment },
    Open { since: Moment, until: Moment, forced: bool },
    HalfOpen { out: u32, succeeded: u32, failed: u32, lease_ends: Moment },
}

#[derive(Debug)]
struct Core {
    policy: BreakerPolicy,
    phase: Phase,
    generation: u64,
    window: Window,
    /// How often in a row a probe failed: the exponent of the back-off.
    failed_probes: u32,
}

/// The breaker of one model.
#[derive(Debug)]
pub struct Breaker {
    core: Mutex<Core>,
    /// From when on a call may be admitted (µs), so that looking takes no lock.
    admits_from: AtomicU64,
}

impl Breaker {
    /// Closed.
    pub fn new(policy: BreakerPolicy) -> Self {
        Self {
            core: Mutex::new(Core {
                window: window_of(&policy),
                policy,
                phase: Phase::Closed { failures: 0, since: Moment::default() },
                generation: 1,
                failed_probes: 0,
            }),
            admits_from: AtomicU64::new(0),
        }
    }

    /// Whether a call would be admitted now. Looking changes nothing.
    pub fn admits(&self, now: Moment) -> bool {
        self.admits_from() <= now
    }

    /// From when on a call would be admitted.
    pub fn admits_from(&self) -> Moment {
        Moment::from_micros(self.admits_from.load(Ordering::Acquire))
    }

    /// Takes leave to make a call. A probe's slot is reclaimed after `lease`.
    pub fn admit(&self, now: Moment, lease: Duration) -> (Option<Ticket>, Option<Transition>) {
        let mut core = lock(&self.core);
        let mut moved = None;
        if let Phase::Open { until, .. } = core.phase {
            if now < until {
                return (None, None);
            }
            moved = Some(core.enter(half_open(), Cause::RecoveryElapsed, now));
        }
        if let Phase::HalfOpen { out, succeeded, failed, lease_ends } = core.phase
            && out + succeeded + failed >= core.probes()
        {
            if now < lease_ends {
                return (None, None);
            }
            moved = Some(core.enter(half_open(), Cause::LeaseExpired, now));
        }
        let mut probe = false;
        if let Phase::HalfOpen { out, lease_ends, .. } = &mut core.phase {
            *out += 1;
            *lease_ends = now + lease;
            probe = true;
        }
        let ticket = Ticket { generation: core.generation, probe };
        self.publish(&core);
        (Some(ticket), moved)
    }

    /// Hands a ticket back with what the call said of the model.
    pub fn settle(
        &self,
        ticket: &Ticket,
        verdict: Verdict,
        now: Moment,
        random: &dyn Random,
    ) -> Option<Transition> {
        let mut core = lock(&self.core);
        if ticket.generation != core.generation {
            return None;
        }
        let moved = core.hear(verdict, ticket.probe, now, random);
        self.publish(&core);
        moved
    }

    /// A stream that had succeeded died: one more failure, under the generation of now.
    pub fn fail_late(&self, now: Moment, random: &dyn Random) -> Option<Transition> {
        let mut core = lock(&self.core);
        let moved = core.hear(Verdict::Failure, false, now, random);
        self.publish(&core);
        moved
    }

    /// Opens it, whatever it was: until `until`, or [`Moment::NEVER`].
    pub fn force_open(&self, until: Moment, now: Moment) -> Transition {
        let mut core = lock(&self.core);
        let moved = core.enter(Phase::Open { since: now, until, forced: true }, Cause::Forced, now);
        self.publish(&core);
        moved
    }

    /// Closes it and forgets its failures.
    pub fn reset(&self, now: Moment) -> Transition {
        let mut core = lock(&self.core);
        core.failed_probes = 0;
        core.window.clear();
        let moved = core.enter(Phase::Closed { failures: 0, since: now }, Cause::Reset, now);
        self.publish(&core);
        moved
    }

    /// Applies an edited policy at once. The state is kept; an open time that was not forced is
    /// measured anew from when it began.
    pub fn configure(&self, policy: BreakerPolicy) {
        let mut core = lock(&self.core);
        if core.policy == policy {
            return;
        }
        if core.policy.error_rate.map(|rate| rate.window) != policy.error_rate.map(|rate| rate.window) {
            core.window = window_of(&policy);
        }
        core.policy = policy;
        let open = core.open_time();
        if let Phase::Open { since, until, forced: false } = &mut core.phase {
            *until = *since + open;
        }
        self.publish(&core);
    }

    /// A look at it, for pages and metrics.
    pub fn view(&self, now: Moment) -> BreakerView {
        let core = lock(&self.core);
        let (failures, open_until, forced) = match core.phase {
            Phase::Closed { failures, .. } => (failures, None, false),
            Phase::Open { until, forced, .. } => (0, Some(until), forced),
            Phase::HalfOpen { .. } => (0, None, false),
        };
        BreakerView {
            state: core.state(),
            consecutive_failures: failures,
            recent: core.window.tally(now),
            open_until,
            forced,
            generation: core.generation,
        }
    }

    fn publish(&self, core: &MutexGuard<'_, Core>) {
        let from = match core.phase {
            Phase::Closed { .. } => Moment::default(),
            Phase::Open { until, .. } => until,
            Phase::HalfOpen { out, succeeded, failed, lease_ends } => {
                if out + succeeded + failed < core.probes() { Moment::default() } else { lease_ends }
            }
        };
        self.admits_from.store(from.as_micros(), Ordering::Release);
    }
}

impl Core {
    fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Probes that half-open lets through.
    fn probes(&self) -> u32 {
        self.policy.error_rate.map_or(1, |rate| rate.probes.max(1))
    }

    /// Probes that must succeed for it to close.
    fn probes_needed(&self) -> u32 {
        let share = self.policy.error_rate.map_or(1.0, |rate| rate.success_rate);
        ((f64::from(self.probes()) * share).ceil() as u32).clamp(1, self.probes())
    }

    fn open_time(&self) -> Duration {
        let base = self.policy.error_rate.map_or(self.policy.recovery, |rate| rate.open);
        if self.policy.backoff { (base * 2_u32.pow(self.failed_probes.min(4))).min(base * 10) } else { base }
    }

    fn hear(
        &mut self,
        verdict: Verdict,
        probe: bool,
        now: Moment,
        random: &dyn Random,
    ) -> Option<Transition> {
        if let Phase::HalfOpen { out, .. } = &mut self.phase
            && probe
        {
            *out = out.saturating_sub(1);
        }
        if verdict == Verdict::Uncounted {
            return None;
        }
        let failed_now = verdict == Verdict::Failure;
        self.window.record(now, failed_now);
        let probes = self.probes();
        let needed = self.probes_needed();
        match &mut self.phase {
            Phase::Open { .. } => None,
            Phase::Closed { failures, .. } if !failed_now => {
                *failures = 0;
                None
            }
            Phase::Closed { failures, since } => {
                *failures += 1;
                let in_a_row = *failures;
                if now.since(*since) >= Duration::from_secs(600) {
                    self.failed_probes = 0;
                }
                if in_a_row >= self.policy.failure_threshold {
                    return Some(self.open(Cause::FailuresInARow, now, random));
                }
                let tally = self.window.tally(now);
                let tripped = self.policy.error_rate.is_some_and(|rate| {
                    tally.calls >= u64::from(rate.min_calls) && tally.error_rate() > rate.threshold
                });
                tripped.then(|| self.open(Cause::ErrorRate, now, random))
            }
            Phase::HalfOpen { succeeded, failed, .. } => {
                if failed_now {
                    *failed += 1;
                    if probes.saturating_sub(*failed) < needed {
                        self.failed_probes = self.failed_probes.saturating_add(1);
                        return Some(self.open(Cause::ProbeFailed, now, random));
                    }
                } else if probe {
                    *succeeded += 1;
                    if *succeeded >= needed {
                        self.window.clear();
                        let closed = Phase::Closed { failures: 0, since: now };
                        return Some(self.enter(closed, Cause::ProbesSucceeded, now));
                    }
                }
                None
            }
        }
    }

    fn open(&mut self, cause: Cause, now: Moment, random: &dyn Random) -> Transition {
        let time = self.open_time();
        let time = if self.policy.backoff { random.jitter(time, 10) } else { time };
        self.enter(Phase::Open { since: now, until: now + time, forced: false }, cause, now)
    }

    fn enter(&mut self, phase: Phase, cause: Cause, at: Moment) -> Transition {
        let from = self.state();
        self.phase = phase;
        self.generation += 1;
        Transition { from, to: self.state(), cause, generation: self.generation, at }
    }
}

const fn half_open() -> Phase {
    Phase::HalfOpen { out: 0, succeeded: 0, failed: 0, lease_ends: Moment::NEVER }
}

fn window_of(policy: &BreakerPolicy) -> Window {
    Window::new(policy.error_rate.map_or(Duration::from_secs(60), |rate| rate.window))
}
