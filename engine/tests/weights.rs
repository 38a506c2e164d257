//! Dynamic weights over real tasks, and that nothing swings.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, Play, fail, load, member};
use forebay_engine::policy::{PoolPolicy, Strategy};
use forebay_engine::random::SeededRandom;
use forebay_engine::select::Wish;
use forebay_engine::{Class, Clock, Needs};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn dynamic(names: &[&'static str]) -> Bench {
    let policy = PoolPolicy { dynamic_weights: true, ..PoolPolicy::default() };
    let bench = Bench::with(names.iter().map(|name| member(name).weight(10).room(1_000)), policy, 3);
    bench.set_policy(|policy| policy.breaker.failure_threshold = u32::MAX);
    bench
}

fn effective(bench: &Bench, name: &str) -> f64 {
    bench.pool().effective_weight(&bench.member(name), bench.clock.now())
}

fn after(millis: u64) -> Play {
    Play::After(Duration::from_millis(millis))
}

#[tokio::test(start_paused = true)]
async fn weights_stay_as_they_are_unless_they_are_dynamic() {
    let bench = Arc::new(dynamic(&["a", "b"]));
    bench.set_policy(|policy| policy.dynamic_weights = false);
    bench.script.set("a", [after(900)]);
    bench.script.set("b", [fail(Class::Upstream)]);
    load(&bench, 10, Duration::from_secs(20)).await;
    assert_eq!(["a", "b"].map(|name| effective(&bench, name)), [10.0, 10.0]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_member_gets_less_a_quick_one_more_and_draws_follow() {
    let bench = Arc::new(dynamic(&["a", "b"]));
    bench.set_policy(|policy| policy.latency_target = Some(Duration::from_millis(400)));
    bench.script.set("a", [after(800)]);
    bench.script.set("b", [after(250)]);
    load(&bench, 10, Duration::from_secs(30)).await;
    let weights = ["a", "b"].map(|name| effective(&bench, name));
    assert!((weights[0] - 5.0).abs() < 0.05 && (weights[1] - 16.0).abs() < 0.1, "{weights:?}");
    let (pool, random, needs) = (bench.pool(), SeededRandom::new(9), Needs::default());
    let of_a = (0..50_000).filter(|_| {
        let member = pool.dry_pick(&Wish::any(&needs), &random, bench.clock.now()).expect("a pick");
        &*member.name == "a"
    });
    let share = of_a.count() as f64 / 50_000.0;
    assert!((share - weights[0] / (weights[0] + weights[1])).abs() < 0.01, "{share} of {weights:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_target_the_median_is_the_measure() {
    let bench = Arc::new(dynamic(&NAMES));
    for (name, millis) in NAMES.into_iter().zip([200, 400, 1_000]) {
        bench.script.set(name, [after(millis)]);
    }
    load(&bench, 10, Duration::from_secs(40)).await;
    let weights = NAMES.map(|name| effective(&bench, name));
    for (weight, expected) in weights.iter().zip([20.0, 10.0, 4.0]) {
        assert!((weight - expected).abs() < 0.1, "{weights:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_member_gets_less_and_an_edit_does_not_send_it_back_to_its_base() {
    let bench = Arc::new(dynamic(&["a", "b"]));
    bench.script.set("a", [fail(Class::Upstream)]);
    load(&bench, 20, Duration::from_secs(40)).await;
    let before = effective(&bench, "a");
    assert!((before - 0.5).abs() < 0.01, "{before}");
    bench.edit(|specs| specs[1].weight = 20);
    assert!((effective(&bench, "a") - before).abs() < 0.01);
    assert!(effective(&bench, "b") > 19.0);
}

#[tokio::test(start_paused = true)]
async fn a_weight_moves_a_fifth_a_second_at_most() {
    let bench = Arc::new(dynamic(&["a", "b"]));
    bench.script.set("a", [fail(Class::Upstream)]);
    let mut last = effective(&bench, "a");
    for _ in 0..30 {
        load(&bench, 20, Duration::from_secs(1)).await;
        let now = effective(&bench, "a");
        assert!(now >= last * 0.795, "from {last} to {now} in a second");
        last = now;
    }
    assert!(last < 0.6, "{last}");
    bench.script.set("a", [Play::Serve]);
    let forgotten = Duration::from_secs(300);
    bench.clock.advance(forgotten);
    assert!(effective(&bench, "a") > 9.9, "and is forgiven");
}

/// Each member's share of the calls in each `span` since `start`.
fn shares(bench: &Bench, start: tokio::time::Instant, span: Duration) -> Vec<[f64; 3]> {
    let mut spans: Vec<[f64; 3]> = Vec::new();
    for (at, name) in bench.script.timed(start) {
        let place = (at.as_millis() / span.as_millis()) as usize;
        spans.resize((place + 1).max(spans.len()), [0.0; 3]);
        let member = NAMES.iter().position(|known| **known == name).expect("a member");
        spans[place][member] += 1.0;
    }
    let share = |counts: [f64; 3]| counts.map(|count| count / counts.iter().sum::<f64>());
    spans.into_iter().map(share).collect()
}

fn furthest(shares: &[[f64; 3]], from: [f64; 3]) -> f64 {
    let apart = shares.iter().flat_map(|shares| (0..3).map(|n| (shares[n] - from[n]).abs()));
    apart.fold(0.0, f64::max)
}

fn mean(shares: &[[f64; 3]]) -> [f64; 3] {
    [0, 1, 2].map(|n| shares.iter().map(|shares| shares[n]).sum::<f64>() / shares.len() as f64)
}

/// For so many minutes, `per_second` calls meet latencies of 100, 300 and 900 ms, and 20 ms more
/// for each other call that is out; every minute these go round among the members.
async fn swap_every_minute(bench: &Arc<Bench>, minutes: usize, per_second: u32) -> tokio::time::Instant {
    let start = tokio::time::Instant::now();
    for minute in 0..minutes {
        for (place, millis) in [100, 300, 900].into_iter().enumerate() {
            let name = NAMES[(place + minute) % 3];
            bench.script.set(name, [Play::Busy(Duration::from_millis(millis), Duration::from_millis(20))]);
        }
        load(bench, per_second, Duration::from_secs(60)).await;
        tokio::time::sleep_until(start + Duration::from_secs(60) * (minute as u32 + 1)).await;
    }
    start
}

/// Over five minutes all three are equally quick, so their shares go to a third each, and a swap
/// moves them little; weights that followed the last minute would swing between a tenth and two thirds.
#[tokio::test(start_paused = true)]
async fn dynamic_weights_converge_and_do_not_swing_when_latencies_swap_every_minute() {
    let bench = Arc::new(dynamic(&NAMES));
    let start = swap_every_minute(&bench, 10, 20).await;
    let shares = shares(&bench, start, Duration::from_secs(20));
    let settled = &shares[15..30];
    let thirds = [1.0 / 3.0; 3];
    assert!(furthest(settled, thirds) < 0.15, "{settled:.2?}");
    for minute in settled.chunks(3) {
        assert!(furthest(&[mean(minute)], thirds) < 0.1, "{settled:.2?}");
    }
    for pair in settled.windows(2) {
        assert!(furthest(&pair[1..], pair[0]) < 0.15, "{settled:.2?}");
    }
}

/// Ten seconds after each swap the quickest has most of the calls, the slowest still some, and nobody's
/// share moves any more.
#[tokio::test(start_paused = true)]
async fn least_latency_settles_after_each_swap_and_does_not_swing() {
    let policy = PoolPolicy { strategy: Strategy::LeastLatency, ..PoolPolicy::default() };
    let bench = Arc::new(Bench::with(NAMES.map(|name| member(name).room(1_000)), policy, 3));
    let start = swap_every_minute(&bench, 4, 40).await;
    let shares = shares(&bench, start, Duration::from_secs(10));
    for (minute, shares) in shares[..24].chunks(6).enumerate() {
        let (quickest, slowest) = (minute % 3, (minute + 2) % 3);
        let settled = &shares[1..];
        assert!(furthest(settled, mean(settled)) < 0.06, "minute {minute}: {shares:.2?}");
        assert!(settled.iter().all(|shares| shares[quickest] > 0.55), "minute {minute}: {shares:.2?}");
        assert!(settled.iter().all(|shares| shares[slowest] > 0.02), "minute {minute}: {shares:.2?}");
    }
}
