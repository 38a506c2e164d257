//! How long a model takes to serve: at its worst of late, and on average.
//!
//! Only successes count; of a stream, the time to its first content.

use std::time::Duration;

use crate::clock::Moment;
use crate::member::RECENT;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::window::Ring;

/// How fast a peak is forgotten: to a third in ten seconds.
const TAU_MICROS: f64 = 10_000_000.0;

/// A model's latency of late.
#[derive(Debug)]
pub struct Latency {
    /// The peak-EWMA (µs) as of `at`; 0 = nothing known. So that looking takes no lock.
    peak: AtomicU64,
    /// µs.
    at: AtomicU64,
    recent: Mutex<Ring<Sum>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    micros: u64,
}

impl Latency {
    /// Nothing known.
    pub fn new() -> Self {
        Self { peak: AtomicU64::new(0), at: AtomicU64::new(0), recent: Mutex::new(Ring::new(RECENT)) }
    }

    /// The mean of the last five minutes; `None` without any success in them.
    pub fn mean(&self, now: Moment) -> Option<Duration> {
        let (mut count, mut micros) = (0_u64, 0_u64);
        for sum in lock(&self.recent).slices(now) {
            count += sum.count;
            micros = micros.saturating_add(sum.micros);
        }
        micros.checked_div(count).map(Duration::from_micros)
    }

    /// The peak-EWMA: it rises at once to whatever is worse, and comes down over ten seconds. `None`
    /// before the first success.
    pub fn peak(&self) -> Option<Duration> {
        match self.peak.load(Ordering::Acquire) {
            0 => None,
            peak => Some(Duration::from_micros(peak)),
        }
    }

    /// The peak as it is held against a model that nobody has asked for a while: the longer, the less,
    /// so that it is tried again.
    pub fn faded(&self, now: Moment) -> Option<Duration> {
        let quiet = now.as_micros().saturating_sub(self.at.load(Ordering::Acquire));
        self.peak().map(|peak| peak.mul_f64(left_after(quiet)))
    }

    /// Counts one success.
    pub(crate) fn record(&self, took: Duration, now: Moment) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let mut recent = lock(&self.recent);
        let sum = recent.newest(now);
        sum.count += 1;
        sum.micros = sum.micros.saturating_add(micros);
        let (peak, at) = (self.peak.load(Ordering::Relaxed), self.at.load(Ordering::Relaxed));
        let next = if micros >= peak {
            micros
        } else {
            let left = left_after(now.as_micros().saturating_sub(at));
            (peak as f64 * left + micros as f64 * (1.0 - left)) as u64
        };
        self.peak.store(next, Ordering::Release);
        self.at.store(now.as_micros(), Ordering::Release);
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

fn left_after(micros: u64) -> f64 {
    (-(micros as f64) / TAU_MICROS).exp()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn start() -> Moment {
        Moment::from_millis(1_700_000_000_000)
    }

    fn millis(span: Option<Duration>) -> u128 {
        span.expect("a latency").as_millis()
    }

    #[test]
    fn a_peak_rises_at_once_and_comes_down_over_ten_seconds() {
        let (latency, now) = (Latency::new(), start());
        assert_eq!((latency.peak(), latency.mean(now)), (None, None));
        latency.record(100 * MS, now);
        latency.record(900 * MS, now);
        assert_eq!(millis(latency.peak()), 900);
        latency.record(100 * MS, now + 10 * 1_000 * MS);
        assert_eq!(millis(latency.peak()), 394, "100 + 800 ÷ e");
        for second in 11..60 {
            latency.record(100 * MS, now + second * 1_000 * MS);
        }
        assert!(millis(latency.peak()) < 105);
    }

    #[test]
    fn whoever_is_left_alone_is_forgiven() {
        let (latency, now) = (Latency::new(), start());
        latency.record(1_000 * MS, now);
        assert_eq!(millis(latency.faded(now)), 1_000);
        assert_eq!(millis(latency.faded(now + 10_000 * MS)), 367);
        assert!(millis(latency.faded(now + 60_000 * MS)) < 3);
        assert_eq!(millis(latency.peak()), 1_000, "what was measured is kept");
    }

    #[test]
    fn the_mean_is_of_the_last_five_minutes() {
        let (latency, now) = (Latency::new(), start());
        latency.record(100 * MS, now);
        latency.record(300 * MS, now + 200_000 * MS);
        assert_eq!(millis(latency.mean(now + 200_000 * MS)), 200);
        assert_eq!(millis(latency.mean(now + 330_000 * MS)), 300);
        assert_eq!(latency.mean(now + 600_000 * MS), None);
    }
}
