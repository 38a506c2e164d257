//! Dynamic weights: shares that follow how the members do.
//!
//! `effective = weight × clamp(1 − error rate, 0.05, 1) × clamp(target ÷ latency, 0.25, 2)`, over the
//! last five minutes, with at least 1 % of the base left and moving at most 20 % a second. A pick
//! draws from a table that is made anew at most every tenth of a second, by whoever comes first.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::member::{Member, ModelId};
use crate::pool::{Pool, Tier};
use crate::random::Random;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::window::Tally;

/// How often the table is made anew, at most.
const EVERY: Duration = Duration::from_millis(100);
/// Calls below which an error rate is believed only in part.
const ENOUGH_CALLS: u64 = 20;
/// What is left of a weight whatever happens, so that the member is tried again.
const FLOOR: f64 = 0.01;
/// How far a weight moves in a second, as a share of what it is.
const PACE: f64 = 0.2;
/// What a table's numbers are to a weight: shares are kept to a thousandth of the smallest weight.
const SCALE: f64 = 1_000.0;

/// A pool's table of effective weights.
#[derive(Debug)]
pub(crate) struct Dynamic {
    /// When it is to be made anew (µs).
    due: AtomicU64,
    /// The running sums of each tier.
    sums: Mutex<Vec<Vec<u64>>>,
}

impl Dynamic {
    /// Base weights, to be made anew at the first pick.
    pub(crate) fn new(tiers: &[Tier]) -> Self {
        Self {
            due: AtomicU64::new(0),
            sums: Mutex::new(tiers.iter().map(|tier| tier.sums.clone()).collect()),
        }
    }
}

/// What each member's weight is multiplied by, and as of when; outlives edits of the pool.
#[derive(Debug, Default)]
pub(crate) struct Factors(HashMap<ModelId, (f64, Moment)>);

impl Factors {
    fn of(&self, model: &ModelId) -> f64 {
        self.0.get(model).map_or(1.0, |(factor, _)| *factor)
    }

    /// Moves a factor towards `wanted`, as far as it may move by now.
    fn step(&mut self, model: &ModelId, wanted: f64, now: Moment) -> f64 {
        let (factor, at) = self.0.entry(model.clone()).or_insert((1.0, now));
        *factor = moved(*factor, wanted, now.since(*at));
        *at = now;
        *factor
    }
}

impl Pool {
    /// The weight by which `member` is drawn: its own, or, with dynamic weights, what has become of it.
    pub fn effective_weight(&self, member: &Member, now: Moment) -> f64 {
        let base = f64::from(member.weight.get());
        if self.dynamic.is_none() {
            return base;
        }
        self.follow(now);
        base * lock(&self.state.factors).of(&member.model)
    }

    /// Makes the table anew, if it is due and nobody else is at it.
    pub(crate) fn follow(&self, now: Moment) {
        let Some(dynamic) = &self.dynamic else {
            return;
        };
        let due = dynamic.due.load(Ordering::Relaxed);
        let next = (now + EVERY).as_micros();
        let is_mine = || dynamic.due.compare_exchange(due, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if now.as_micros() < due || !is_mine() {
            return;
        }
        let latencies: Vec<_> = self.members().map(|member| member.state.latency.mean(now)).collect();
        let target = self.policy.latency_target.or_else(|| median(latencies.iter().flatten().copied()));
        let mut latencies = latencies.into_iter();
        let mut factors = lock(&self.state.factors);
        let sums = self.tiers.iter().map(|tier| {
            let mut sum = 0;
            let running = tier.members.iter().map(|member| {
                let latency = latencies.next().flatten();
                let wanted = wanted(member.state.recent(now), target, latency, 1.0);
                let factor = factors.step(&member.model, wanted, now);
                sum += ((f64::from(member.weight.get()) * factor * SCALE).round() as u64).max(1);
                sum
            });
            running.collect()
        });
        let sums = sums.collect();
        *lock(&dynamic.sums) = sums;
    }

    /// Draws the place of a member of a tier, proportional to weight.
    pub(crate) fn draw(&self, tier: usize, random: &dyn Random) -> usize {
        let drawn = |sums: &[u64]| {
            let point = random.below(sums.last().copied().unwrap_or(0));
            sums.partition_point(|sum| *sum <= point)
        };
        match &self.dynamic {
            None => drawn(&self.tiers[tier].sums),
            Some(dynamic) => drawn(&lock(&dynamic.sums)[tier]),
        }
    }

    /// The weights of a tier's members, as they are drawn by.
    pub(crate) fn weights(&self, tier: usize) -> Vec<u64> {
        let differences = |sums: &[u64]| {
            let before = std::iter::once(0).chain(sums.iter().copied());
            sums.iter().zip(before).map(|(sum, before)| sum - before).collect()
        };
        match &self.dynamic {
            None => differences(&self.tiers[tier].sums),
            Some(dynamic) => differences(&lock(&dynamic.sums)[tier]),
        }
    }
}

/// What a weight is to be multiplied by.
fn wanted(recent: Tally, target: Option<Duration>, latency: Option<Duration>, cost_factor: f64) -> f64 {
    let believed = (recent.calls as f64 / ENOUGH_CALLS as f64).min(1.0);
    let healthy = (1.0 - recent.error_rate() * believed).clamp(0.05, 1.0);
    let quick = target.zip(latency).map_or(1.0, |(target, latency)| {
        (target.as_secs_f64() / latency.as_secs_f64().max(1e-6)).clamp(0.25, 2.0)
    });
    (healthy * quick * cost_factor).max(FLOOR)
}

/// Where a factor is, `after` a while on its way.
fn moved(from: f64, wanted: f64, after: Duration) -> f64 {
    let seconds = after.as_secs_f64();
    wanted.clamp(from * (1.0 - PACE).powf(seconds), from * (1.0 + PACE).powf(seconds))
}

/// Of an even number, the mean of the two in the middle.
fn median(latencies: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut sorted: Vec<_> = latencies.collect();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_formula_by_hand() {
        // calls, failures, target, latency, cost factor → factor
        for (calls, failures, target, latency, cost_factor, expected) in [
            (0, 0, None, None, 1.0, 1.0),
            (100, 0, ms(500), ms(500), 1.0, 1.0),
            (100, 30, ms(500), ms(500), 1.0, 0.7),
            (100, 100, ms(500), ms(500), 1.0, 0.05),
            (100, 0, ms(500), ms(250), 1.0, 2.0),
            (100, 0, ms(500), ms(10), 1.0, 2.0),
            (100, 0, ms(500), ms(1_000), 1.0, 0.5),
            (100, 0, ms(500), ms(60_000), 1.0, 0.25),
            (100, 50, ms(500), ms(1_000), 1.0, 0.25),
            (100, 0, ms(500), None, 1.0, 1.0),
            (100, 0, None, ms(500), 1.0, 1.0),
            // Below twenty calls an error rate is believed in part.
            (1, 1, None, None, 1.0, 0.95),
            (10, 5, None, None, 1.0, 0.75),
            (20, 10, None, None, 1.0, 0.5),
            // One per cent is left.
            (100, 100, ms(500), ms(60_000), 0.1, 0.01),
        ] {
            let factor = wanted(Tally { calls, failures }, target, latency, cost_factor);
            assert!(close(factor, expected), "{calls} {failures} {target:?} {latency:?}: {factor}");
        }
    }

    #[test]
    fn a_factor_moves_a_fifth_a_second_however_often_it_is_looked_at() {
        assert!(close(moved(1.0, 2.0, Duration::from_secs(1)), 1.2));
        assert!(close(moved(1.0, 0.25, Duration::from_secs(1)), 0.8));
        assert!(close(moved(1.0, 1.1, Duration::from_secs(1)), 1.1));
        assert!(close(moved(1.0, 0.25, Duration::ZERO), 1.0));
        let often = (0..10).fold(1.0, |factor, _| moved(factor, 2.0, Duration::from_millis(100)));
        assert!(close(often, 1.2), "{often}");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median([ms(900), ms(100), ms(300)].into_iter().flatten()), ms(300));
        assert_eq!(median([ms(900), ms(100), ms(300), ms(500)].into_iter().flatten()), ms(400));
        assert_eq!(median(std::iter::empty()), None);
    }
}
