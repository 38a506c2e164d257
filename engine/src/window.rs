//! Calls and failures of the last while, in a ring of time slices.

use std::time::Duration;

use crate::clock::Moment;

const SLICES: usize = 10;

/// What a [`Window`] holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All calls.
    pub calls: u64,
    /// Those of them that failed.
    pub failures: u64,
}

impl Tally {
    /// Failures ÷ calls, 0 without any call.
    pub fn error_rate(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.failures as f64 / self.calls as f64 }
    }
}

/// A sliding count over the last `span`, exact to a tenth of it.
#[derive(Clone, Debug)]
pub struct Window {
    slice_micros: u64,
    /// The number of the slice that each place of the ring holds, and its tally.
    ring: [(u64, Tally); SLICES],
}

impl Window {
    /// Counts over the last `span`.
    pub fn new(span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self { slice_micros: (micros / SLICES as u64).max(1), ring: [(0, Tally::default()); SLICES] }
    }

    /// Counts one call.
    pub fn record(&mut self, now: Moment, failed: bool) {
        let number = now.as_micros() / self.slice_micros;
        let place = &mut self.ring[(number % SLICES as u64) as usize];
        if place.0 != number {
            *place = (number, Tally::default());
        }
        place.1.calls += 1;
        place.1.failures += u64::from(failed);
    }

    /// The sum over the span that ends now.
    pub fn tally(&self, now: Moment) -> Tally {
        let newest = now.as_micros() / self.slice_micros;
        let oldest = newest.saturating_sub(SLICES as u64 - 1);
        let mut sum = Tally::default();
        for (number, tally) in &self.ring {
            if (oldest..=newest).contains(number) {
                sum.calls += tally.calls;
                sum.failures += tally.failures;
            }
        }
        sum
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ring = [(0, Tally::default()); SLICES];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_leaves_the_window_after_its_span() {
        let mut window = Window::new(Duration::from_secs(60));
        let start = Moment::from_millis(1_000_000_000);
        window.record(start, true);
        window.record(start + Duration::from_secs(30), false);
        assert_eq!(window.tally(start + Duration::from_secs(30)), Tally { calls: 2, failures: 1 });
        assert_eq!(window.tally(start + Duration::from_secs(65)), Tally { calls: 1, failures: 0 });
        assert_eq!(window.tally(start + Duration::from_secs(600)), Tally::default());
    }
}
