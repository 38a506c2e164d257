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
pub struct Window(Ring<Tally>);

impl Window {
    /// Counts over the last `span`.
    pub fn new(span: Duration) -> Self {
        Self(Ring::new(span))
    }

    /// Counts one call.
    pub fn record(&mut self, now: Moment, failed: bool) {
        let tally = self.0.newest(now);
        tally.calls += 1;
        tally.failures += u64::from(failed);
    }

    /// The sum over the span that ends now.
    pub fn tally(&self, now: Moment) -> Tally {
        let mut sum = Tally::default();
        for tally in self.0.slices(now) {
            sum.calls += tally.calls;
            sum.failures += tally.failures;
        }
        sum
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Sums of anything, one a time slice, for the last `span`.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    slice_micros: u64,
    /// The number of the slice that each place holds, and its sum.
    places: [(u64, T); SLICES],
}

impl<T: Copy + Default> Ring<T> {
    pub(crate) fn new(span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self { slice_micros: (micros / SLICES as u64).max(1), places: [(0, T::default()); SLICES] }
    }

    /// The sum of the slice of now, to add to.
    pub(crate) fn newest(&mut self, now: Moment) -> &mut T {
        let number = now.as_micros() / self.slice_micros;
        let place = &mut self.places[(number % SLICES as u64) as usize];
        if place.0 != number {
            *place = (number, T::default());
        }
        &mut place.1
    }

    /// The sums of the span that ends now.
    pub(crate) fn slices(&self, now: Moment) -> impl Iterator<Item = &T> {
        let newest = now.as_micros() / self.slice_micros;
        let span = newest.saturating_sub(SLICES as u64 - 1)..=newest;
        self.places.iter().filter(move |(number, _)| span.contains(number)).map(|(_, sum)| sum)
    }

    pub(crate) fn clear(&mut self) {
        self.places = [(0, T::default()); SLICES];
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
