//! Limits: a rate as GCRA in integer microseconds, tokens a minute in the same way, and a count of
//! what is in flight.

use std::time::Duration;

use crate::clock::Moment;
use crate::policy::Invalid;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// An account's requests a second, as the interval that GCRA reckons with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval_micros: u64,
    tolerance_micros: u64,
}

impl Rate {
    /// From requests a second, decimals allowed, less `headroom` (a share of 0–0.9). The burst is
    /// max(1, rps ÷ 10).
    pub fn try_new(rps: f64, headroom: f64) -> Result<Self, Invalid> {
        if !(rps > 0.0 && rps <= 1_000_000.0) {
            return Err(Invalid("must be above 0 and at most 1000000 requests a second"));
        }
        if !(0.0..=0.9).contains(&headroom) {
            return Err(Invalid("must be a share between 0 and 0.9"));
        }
        let rps = rps * (1.0 - headroom);
        let interval_micros = ((1_000_000.0 / rps).round() as u64).max(1);
        let burst = ((rps / 10.0) as u64).max(1);
        Ok(Self { interval_micros, tolerance_micros: (burst - 1) * interval_micros })
    }
}

/// The generic cell rate algorithm: one number, the theoretical arrival time of the next request.
#[derive(Debug, Default)]
pub struct Gcra {
    arrival: AtomicU64,
}

impl Gcra {
    /// When a token will be there; `now` or earlier means at once.
    pub fn free_at(&self, rate: Rate) -> Moment {
        let arrival = self.arrival.load(Ordering::Relaxed);
        Moment::from_micros(arrival.saturating_sub(rate.tolerance_micros))
    }

    /// Takes a token, or says when one will be there.
    pub fn try_take(&self, rate: Rate, now: Moment) -> Result<(), Moment> {
        let now = now.as_micros();
        let mut arrival = self.arrival.load(Ordering::Relaxed);
        loop {
            let free_at = arrival.saturating_sub(rate.tolerance_micros);
            if free_at > now {
                return Err(Moment::from_micros(free_at));
            }
            let next = arrival.max(now) + rate.interval_micros;
            match self.arrival.compare_exchange_weak(arrival, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => arrival = other,
            }
        }
    }
}

/// The time in which an empty bucket of tokens becomes full.
const MINUTE_MICROS: u64 = 60_000_000;

/// An account's tokens a minute, as a bucket that holds one minute's worth and refills steadily: one
/// number, the moment at which it will be full again.
///
/// What a call takes is only expected; [`TokenBucket::correct`] makes it what was used. So the bucket
/// may be overdrawn, and then lets nothing through until the overdraft is paid back.
#[derive(Debug, Default)]
pub struct TokenBucket {
    full_at: AtomicU64,
}

impl TokenBucket {
    /// When `tokens` will be there; `now` or earlier means at once. A call that expects more than a
    /// whole minute's worth waits for a full bucket, as it would wait for ever otherwise.
    pub fn free_at(&self, max_tpm: u64, tokens: u64) -> Moment {
        let wanted = cost_micros(max_tpm, tokens).min(MINUTE_MICROS);
        Moment::from_micros((self.full_at.load(Ordering::Relaxed) + wanted).saturating_sub(MINUTE_MICROS))
    }

    /// Takes `tokens`, or says when they will be there.
    pub fn try_take(&self, max_tpm: u64, tokens: u64, now: Moment) -> Result<(), Moment> {
        let cost = cost_micros(max_tpm, tokens);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let free_at = (full_at + cost.min(MINUTE_MICROS)).saturating_sub(MINUTE_MICROS);
            if free_at > now.as_micros() {
                return Err(Moment::from_micros(free_at));
            }
            let next = full_at.max(now.as_micros()) + cost;
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
    }

    /// A call that took `taken` tokens has used `used`: the difference is taken too, or given back.
    pub fn correct(&self, max_tpm: u64, taken: u64, used: u64, now: Moment) {
        let (taken, used) = (cost_micros(max_tpm, taken), cost_micros(max_tpm, used));
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let next = if used >= taken {
                full_at.max(now.as_micros()) + (used - taken)
            } else {
                full_at.saturating_sub(taken - used)
            };
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => full_at = other,
            }
        }
    }
}

/// How long `tokens` take to refill, rounded up; at most a day, which no sum of them overflows.
fn cost_micros(max_tpm: u64, tokens: u64) -> u64 {
    const DAY_MICROS: u128 = 86_400_000_000;
    let micros = (u128::from(tokens) * u128::from(MINUTE_MICROS)).div_ceil(u128::from(max_tpm.max(1)));
    micros.min(DAY_MICROS) as u64
}

/// What is in flight, below a limit that may change at any time.
#[derive(Debug)]
pub struct Slots {
    taken: AtomicU32,
}

impl Slots {
    /// None taken.
    pub fn new() -> Self {
        Self { taken: AtomicU32::new(0) }
    }

    /// How many are taken.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether one could be taken below `limit`; `None` = unlimited.
    pub fn has_room(&self, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| self.taken() < limit)
    }

    /// Takes one below `limit`. Whoever takes one gives it back with [`Slots::release`].
    #[must_use]
    pub fn try_take(&self, limit: Option<u32>) -> bool {
        let Some(limit) = limit else {
            self.taken.fetch_add(1, Ordering::AcqRel);
            return true;
        };
        let mut taken = self.taken.load(Ordering::Acquire);
        while taken < limit {
            match self.taken.compare_exchange_weak(taken, taken + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => taken = other,
            }
        }
        false
    }

    /// Gives one back.
    pub fn release(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

/// A rough span for "come back later": never zero, so that nobody is told to come back at once.
pub(crate) fn at_least_a_moment(span: Duration) -> Duration {
    span.max(Duration::from_millis(100))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_its_burst_through_and_then_one_an_interval() {
        let rate = Rate::try_new(50.0, 0.0).expect("50 a second is a rate");
        let gcra = Gcra::default();
        let start = Moment::from_millis(10_000);
        for _ in 0..5 {
            assert_eq!(gcra.try_take(rate, start), Ok(()));
        }
        let next = start + Duration::from_millis(20);
        assert_eq!(gcra.try_take(rate, start), Err(next));
        assert_eq!(gcra.try_take(rate, next), Ok(()));
        assert!(gcra.try_take(rate, next).is_err());
    }

    #[test]
    fn over_a_long_time_the_rate_is_exact() {
        let rate = Rate::try_new(2.5, 0.0).expect("2.5 a second is a rate");
        let gcra = Gcra::default();
        let start = Moment::from_millis(1_000);
        let granted = (0..100_000_u64)
            .filter(|ms| gcra.try_take(rate, start + Duration::from_millis(*ms)).is_ok())
            .count();
        assert_eq!(granted, 250);
    }

    #[test]
    fn headroom_is_taken_off_the_rate() {
        assert_eq!(Rate::try_new(100.0, 0.1), Rate::try_new(90.0, 0.0));
        assert!(Rate::try_new(0.0, 0.0).is_err());
        assert!(Rate::try_new(f64::NAN, 0.0).is_err());
        assert!(Rate::try_new(1.0, 1.0).is_err());
    }

    #[test]
    fn a_minutes_worth_of_tokens_goes_through_and_then_as_many_as_come_back() {
        let (bucket, now) = (TokenBucket::default(), Moment::from_millis(1_000_000));
        assert_eq!(bucket.try_take(6_000, 6_000, now), Ok(()));
        let later = now + Duration::from_secs(10);
        assert_eq!(bucket.try_take(6_000, 1_000, now), Err(later), "a hundred come back each second");
        assert_eq!(bucket.free_at(6_000, 1_000), later);
        assert_eq!(bucket.try_take(6_000, 1_000, later), Ok(()));
        assert!(bucket.try_take(6_000, 1, later).is_err());
    }

    #[test]
    fn what_was_used_beyond_what_was_expected_is_paid_back_first_and_what_was_not_is_there_again() {
        let (bucket, now) = (TokenBucket::default(), Moment::from_millis(1_000_000));
        assert_eq!(bucket.try_take(6_000, 1_000, now), Ok(()));
        bucket.correct(6_000, 1_000, 12_000, now);
        assert_eq!(bucket.free_at(6_000, 6_000), now + Duration::from_secs(120));
        bucket.correct(6_000, 12_000, 0, now);
        assert_eq!(bucket.try_take(6_000, 6_000, now), Ok(()));
    }

    #[test]
    fn more_than_a_minutes_worth_waits_for_a_full_bucket_and_overdraws_it() {
        let (bucket, now) = (TokenBucket::default(), Moment::from_millis(1_000_000));
        assert_eq!(bucket.try_take(6_000, 100, now), Ok(()));
        assert_eq!(bucket.try_take(6_000, 9_000, now), Err(now + Duration::from_secs(1)));
        let full = now + Duration::from_secs(1);
        assert_eq!(bucket.try_take(6_000, 9_000, full), Ok(()));
        assert_eq!(bucket.free_at(6_000, 0), full + Duration::from_secs(30));
        assert_eq!(bucket.try_take(0, u64::MAX, Moment::default()), Err(full + Duration::from_secs(90)));
    }

    #[test]
    fn slots_stop_at_their_limit() {
        let slots = Slots::new();
        assert!(slots.try_take(Some(1)));
        assert!(!slots.try_take(Some(1)));
        assert!(slots.try_take(Some(2)), "a raised limit applies at once");
        slots.release();
        assert!(!slots.has_room(Some(1)));
    }
}
