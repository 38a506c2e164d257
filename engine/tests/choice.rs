//! Which member, and which account of it: strategies, regions, preference, turns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{AccountSpec, Bench, End, Play, Spec, load, member, served};
use forebay_engine::policy::{PoolPolicy, Strategy};
use forebay_engine::random::SeededRandom;
use forebay_engine::select::Wish;
use forebay_engine::{Clock, Costs, ModelId, Needs, Usage};

fn with_strategy(strategy: Strategy, specs: impl IntoIterator<Item = Spec>) -> Bench {
    Bench::with(specs, PoolPolicy { strategy, ..PoolPolicy::default() }, 1)
}

/// How often each member is picked, every pick being given back at once.
fn counts(bench: &Bench, wish: &Wish<'_>, picks: usize) -> HashMap<String, usize> {
    let (pool, random) = (bench.pool(), SeededRandom::new(5));
    let mut counts = HashMap::new();
    for _ in 0..picks {
        let picked = pool.pick(wish, &random, bench.clock.now()).expect("someone is free");
        *counts.entry(picked.member.name.to_string()).or_default() += 1;
    }
    counts
}

/// How often each account of `a` is used by `tasks` tasks, one after the other.
async fn accounts_of_a(bench: &Bench, tasks: usize) -> HashMap<String, usize> {
    let before = bench.script.accounts_used().len();
    for _ in 0..tasks {
        assert_eq!(bench.run().await.0, served("a"));
    }
    let mut counts = HashMap::new();
    for account in bench.script.accounts_used().into_iter().skip(before).flatten() {
        *counts.entry(account).or_default() += 1;
    }
    counts
}

fn only(name: &str, count: usize) -> HashMap<String, usize> {
    HashMap::from([(name.to_owned(), count)])
}

#[tokio::test]
async fn every_strategy_is_read_by_its_name() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.as_str().parse(), Ok(strategy));
    }
    let names = Strategy::ALL.map(Strategy::as_str);
    assert_eq!(names, ["weighted_random", "round_robin", "least_latency", "lowest_cost"]);
    assert!("fastest".parse::<Strategy>().is_err());
}

#[tokio::test]
async fn the_turns_of_members_that_are_out_are_shared_out_among_the_others() {
    for (out, expected) in [
        (&["b"][..], &[("a", 40), ("c", 40), ("d", 40)][..]),
        (&["b", "d"], &[("a", 60), ("c", 60)]),
        (&["a", "b", "d"], &[("c", 120)]),
    ] {
        let bench = with_strategy(Strategy::RoundRobin, ["a", "b", "c", "d"].map(member));
        out.iter().for_each(|name| bench.open(name));
        let expected = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(counts(&bench, &Wish::any(&Needs::default()), 120), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn accounts_of_equal_priority_get_equal_turns_also_when_one_is_out() {
    let bench = Bench::new([member("a").accounts(&["w", "x", "y", "z"])]);
    assert!(accounts_of_a(&bench, 40).await.values().all(|count| *count == 10));
    bench.set_account("x", AccountSpec { is_enabled: false, ..AccountSpec::default() });
    let rest = accounts_of_a(&bench, 120).await;
    assert_eq!(rest.len(), 3);
    assert!(rest.values().all(|count| (38..=42).contains(count)), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn accounts_of_a_lower_priority_serve_only_when_those_above_have_no_room() {
    let bench = Bench::new([member("a").accounts(&["first", "second"])]);
    bench.set_account("second", AccountSpec { priority: 1, ..AccountSpec::default() });
    assert_eq!(accounts_of_a(&bench, 10).await, only("first", 10));
    bench.set_account("first", AccountSpec { max_concurrency: Some(0), ..AccountSpec::default() });
    assert_eq!(accounts_of_a(&bench, 10).await, only("second", 10));
}

#[tokio::test(start_paused = true)]
async fn least_latency_prefers_the_faster_and_starves_nobody() {
    let bench = Arc::new(with_strategy(Strategy::LeastLatency, ["fast", "slow"].map(member)));
    bench.script.set("fast", [Play::After(Duration::from_millis(100))]);
    bench.script.set("slow", [Play::After(Duration::from_millis(800))]);
    load(&bench, 20, Duration::from_secs(120)).await;
    let calls = bench.script.calls();
    let slow = calls.iter().filter(|name| *name == "slow").count();
    assert_eq!(calls.len(), 2_400);
    assert!((4..=120).contains(&slow), "{slow} of {}", calls.len());
}

#[tokio::test(start_paused = true)]
async fn least_latency_heeds_what_is_in_flight() {
    let bench =
        Arc::new(with_strategy(Strategy::LeastLatency, ["a", "b", "c"].map(|name| member(name).room(100))));
    for name in ["a", "b", "c"] {
        bench.script.set(name, [Play::After(Duration::from_millis(500))]);
    }
    load(&bench, 60, Duration::from_secs(20)).await;
    let peaks = ["a", "b", "c"].map(|name| bench.script.peak(name));
    // Thirty are out at a time: ten each, give or take what two choices leave.
    assert!(peaks.iter().all(|peak| (10..=13).contains(peak)), "{peaks:?}");
}

#[tokio::test(start_paused = true)]
async fn least_latency_takes_who_is_left_when_only_one_is_usable() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let bench = with_strategy(Strategy::LeastLatency, names.map(member));
    names[1..].iter().for_each(|name| bench.open(name));
    assert_eq!(counts(&bench, &Wish::any(&Needs::default()), 50), only("a", 50));
}

#[tokio::test]
async fn lowest_cost_takes_the_cheapest_for_the_requests_shape() {
    let talker = Costs { input: 100, output: 900, ..Costs::default() };
    let reader = Costs { input: 300, output: 300, ..Costs::default() };
    let bench =
        with_strategy(Strategy::LowestCost, [member("talker").costs(talker), member("reader").costs(reader)]);
    let needs = Needs::default();
    let wish = |input_tokens, output_tokens| Wish {
        expected: Usage { input_tokens, output_tokens, ..Usage::NONE },
        ..Wish::any(&needs)
    };
    assert_eq!(counts(&bench, &wish(1_000, 100), 20), only("talker", 20));
    assert_eq!(counts(&bench, &wish(1_000, 1_000), 20), only("reader", 20));
    bench.open("reader");
    assert_eq!(counts(&bench, &wish(1_000, 1_000), 20), only("talker", 20));
}

#[tokio::test]
async fn among_equally_cheap_members_weight_decides() {
    let dear = Costs { per_request: 2, ..Costs::default() };
    let cheap = Costs { per_request: 1, ..Costs::default() };
    let members = [
        member("dear").weight(100).costs(dear),
        member("a").costs(cheap),
        member("b").weight(3).costs(cheap),
        member("c").weight(6).costs(cheap),
    ];
    let bench = with_strategy(Strategy::LowestCost, members);
    let counts = counts(&bench, &Wish::any(&Needs::default()), 20_000);
    assert_eq!(counts.len(), 3);
    for (name, share) in [("a", 0.1), ("b", 0.3), ("c", 0.6)] {
        let of = counts[name] as f64 / 20_000.0;
        assert!((of - share).abs() < 0.01, "{name}: {of}");
    }
}

#[tokio::test]
async fn members_of_the_region_come_first_within_their_tier_and_exclude_nobody() {
    for strategy in Strategy::ALL {
        let members = [
            member("eu1").region("eu"),
            member("eu2").region("eu"),
            member("us").region("us").weight(50),
            member("anywhere").weight(50),
            member("eu_below").region("eu").priority(1),
        ];
        let bench = with_strategy(strategy, members);
        let needs = Needs::default();
        let eu = Wish { region: Some("eu"), ..Wish::any(&needs) };
        let picked = counts(&bench, &eu, 100);
        assert!(
            picked.len() == 2 && picked.keys().all(|name| name.starts_with("eu")),
            "{strategy:?}: {picked:?}"
        );
        ["eu1", "eu2"].iter().for_each(|name| bench.open(name));
        let picked = counts(&bench, &eu, 100);
        assert!(
            picked.len() == 2 && picked.contains_key("us") && picked.contains_key("anywhere"),
            "a tier comes before a region: {strategy:?}: {picked:?}"
        );
        let nowhere = Wish { region: Some("moon"), ..Wish::any(&needs) };
        assert_eq!(counts(&bench, &nowhere, 100).len(), 2, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn accounts_of_the_region_come_first_within_their_priority() {
    let bench = Bench::new([member("a").accounts(&["us1", "eu1", "eu2", "eu_below"])]);
    let of = |region| AccountSpec { region: Some(region), ..AccountSpec::default() };
    bench.set_account("us1", of("us"));
    bench.set_account("eu1", of("eu"));
    bench.set_account("eu2", of("eu"));
    bench.set_account("eu_below", AccountSpec { priority: 1, ..of("eu") });
    let mut job = bench.job(false);
    job.region = Some("eu".into());
    let mut used = HashMap::<_, usize>::new();
    for _ in 0..40 {
        let (end, record) = bench.run_on(&job).await;
        assert_eq!(end, served("a"));
        *used.entry(record.steps()[0].clone()).or_default() += 1;
    }
    assert_eq!(used, HashMap::from([("a eu1 initial".to_owned(), 20), ("a eu2 initial".to_owned(), 20)]));
    for label in ["eu1", "eu2"] {
        bench.set_account(label, AccountSpec { is_enabled: false, ..of("eu") });
    }
    assert_eq!(bench.run_on(&job).await.1.steps(), ["a us1 initial"], "priority comes before region");
}

#[tokio::test(start_paused = true)]
async fn the_preferred_model_comes_first_wherever_it_is_usable() {
    let bench = Bench::new([member("a").weight(100), member("b"), member("deep").priority(3)]);
    let mut job = bench.job(false);
    job.prefer = Some(ModelId("deep".into()));
    for _ in 0..20 {
        assert_eq!(bench.run_on(&job).await.0, served("deep"));
    }
    bench.open("deep");
    let End::Served(by) = bench.run_on(&job).await.0 else { panic!("the others serve it") };
    assert!(by == "a" || by == "b");
    job.prefer = Some(ModelId("gone".into()));
    assert!(matches!(bench.run_on(&job).await.0, End::Served(_)));
}

#[tokio::test(start_paused = true)]
async fn preferring_a_model_takes_nobody_elses_turn() {
    let bench = with_strategy(Strategy::RoundRobin, ["a", "b", "deep"].map(member));
    bench.open("deep");
    let mut job = bench.job(false);
    job.prefer = Some(ModelId("deep".into()));
    for _ in 0..20 {
        bench.run_on(&job).await;
    }
    let calls = bench.script.calls();
    assert_eq!(calls.iter().filter(|name| *name == "a").count(), 10, "{calls:?}");
}
