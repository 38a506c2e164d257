//! The distribution of picks.

use std::collections::HashMap;

use crate::support::{Bench, member};
use forebay_engine::policy::{PoolPolicy, Strategy};
use forebay_engine::random::SeededRandom;
use forebay_engine::select::Wish;
use forebay_engine::{Clock, Needs};
use proptest::prelude::*;

fn shares(bench: &Bench, picks: usize, seed: u64) -> HashMap<String, f64> {
    let (pool, random, needs) = (bench.pool(), SeededRandom::new(seed), Needs::default());
    let mut counts: HashMap<String, usize> = HashMap::new();
    for _ in 0..picks {
        let picked = pool.pick(&Wish::any(&needs), &random, bench.clock.now()).expect("someone is free");
        *counts.entry(picked.member.name.to_string()).or_default() += 1;
    }
    counts.into_iter().map(|(name, count)| (name, count as f64 / picks as f64)).collect()
}

fn near(share: f64, expected: f64) -> bool {
    (share - expected).abs() < 0.01
}

fn one_three_six() -> Bench {
    Bench::new([member("a"), member("b").weight(3), member("c").weight(6)])
}

#[tokio::test]
async fn a_hundred_thousand_picks_follow_the_weights_within_a_point() {
    let shares = shares(&one_three_six(), 100_000, 11);
    assert!(near(shares["a"], 0.1) && near(shares["b"], 0.3) && near(shares["c"], 0.6), "{shares:?}");
}

#[tokio::test]
async fn with_the_heaviest_open_the_others_keep_their_ratio() {
    let bench = one_three_six();
    bench.open("c");
    let shares = shares(&bench, 100_000, 12);
    assert!(near(shares["a"], 0.25) && near(shares["b"], 0.75) && shares.len() == 2, "{shares:?}");
}

#[tokio::test]
async fn a_dry_run_gives_the_same_shares_and_takes_nothing() {
    let bench = one_three_six();
    bench.open("c");
    let (pool, random) = (bench.pool(), SeededRandom::new(3));
    let needs = Needs::default();
    let wish = Wish::any(&needs);
    let of_b = (0..10_000)
        .filter(|_| &*pool.dry_pick(&wish, &random, bench.clock.now()).expect("a pick").name == "b");
    let share = of_b.count() as f64 / 10_000.0;
    assert!((0.73..0.77).contains(&share), "{share}");
    assert!(pool.members().all(|member| member.state.in_flight.taken() == 0));
}

#[tokio::test]
async fn round_robin_gives_each_its_turn_and_skips_who_is_unusable() {
    let policy = PoolPolicy { strategy: Strategy::RoundRobin, ..PoolPolicy::default() };
    let bench = Bench::with([member("a"), member("b"), member("c")], policy, 1);
    let all = shares(&bench, 300, 1);
    assert!(all.values().all(|share| near(*share, 1.0 / 3.0)), "{all:?}");
    bench.open("b");
    let rest = shares(&bench, 300, 1);
    assert!(rest.len() == 2 && !rest.contains_key("b"), "{rest:?}");
}

proptest! {
    /// Whoever is usable is picked by weight, whoever else is open or full.
    #[test]
    fn shares_among_the_usable_follow_their_weights(
        weights in prop::collection::vec((1_i64..20, any::<bool>()), 2..8),
        seed in any::<u64>(),
    ) {
        const NAMES: [&str; 8] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _inside = runtime.enter();
        let bench = Bench::new(weights.iter().zip(NAMES).map(|((weight, _), name)| member(name).weight(*weight)));
        for ((_, usable), name) in weights.iter().zip(NAMES) {
            if !usable {
                bench.open(name);
            }
        }
        let total: i64 = weights.iter().filter(|(_, usable)| *usable).map(|(weight, _)| weight).sum();
        prop_assume!(total > 0);
        let shares = shares(&bench, 4_000, seed);
        for ((weight, usable), name) in weights.iter().zip(NAMES) {
            let expected = if *usable { *weight as f64 / total as f64 } else { 0.0 };
            let share = shares.get(name).copied().unwrap_or(0.0);
            prop_assert!((share - expected).abs() < 0.05, "{name}: {share} instead of {expected}");
        }
    }
}
