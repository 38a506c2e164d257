//! Randomness as the engine knows it: a port, so that tests and simulations have seeds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// The port for randomness.
pub trait Random: Send + Sync + 'static {
    /// The next 64 uniformly distributed bits.
    fn next(&self) -> u64;

    /// A number in `0..bound`. The bias of the multiply-shift is below `bound` / 2⁶⁴.
    fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// `span` changed by up to ±`percent` %.
    fn jitter(&self, span: Duration, percent: u32) -> Duration {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let room = micros / 100 * u64::from(percent);
        Duration::from_micros(micros - room + self.below(2 * room + 1))
    }
}

/// The thread's own generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadRandom;

impl Random for ThreadRandom {
    #[expect(clippy::disallowed_methods, reason = "this is the generator that everyone else asks")]
    fn next(&self) -> u64 {
        rand::rng().next_u64()
    }
}

/// The same sequence for the same seed.
#[derive(Debug)]
pub struct SeededRandom(Mutex<SmallRng>);

impl SeededRandom {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SmallRng::seed_from_u64(seed)))
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_bounds() {
        let random = SeededRandom::new(7);
        for _ in 0..1_000 {
            let jittered = random.jitter(Duration::from_secs(1), 20);
            assert!((Duration::from_millis(800)..=Duration::from_millis(1_200)).contains(&jittered));
        }
        assert_eq!(random.jitter(Duration::ZERO, 20), Duration::ZERO);
    }
}
