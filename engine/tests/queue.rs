//! Room: limits, the queue of those that find none, and who takes its place.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{AccountSpec, Bench, End, Play, Record, fail, member, rate_limited, served};
use forebay_engine::policy::PoolPolicy;
use forebay_engine::task::{Stop, Unserved};
use forebay_engine::{Class, Clock};

#[tokio::test(start_paused = true)]
async fn b12_no_more_than_the_limit_is_in_flight_and_the_queue_is_in_order() {
    let bench = Arc::new(Bench::new([member("a").room(100).accounts(&["x"])]));
    bench.set_account("x", AccountSpec { max_concurrency: Some(5), ..AccountSpec::default() });
    bench.script.set("a", [Play::After(Duration::from_millis(100))]);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..50 {
        let bench = bench.clone();
        tasks.spawn(async move {
            let end = bench.run().await.0;
            (n, end, bench.clock.now())
        });
    }
    let mut ends = tasks.join_all().await;
    ends.sort_by_key(|(n, ..)| *n);
    assert!(ends.iter().all(|(_, end, _)| *end == served("a")));
    assert_eq!((bench.script.peak("x"), bench.script.open("x")), (5, 0));
    assert!(ends.is_sorted_by_key(|(_, _, at)| *at), "who came first was served first");
}

#[tokio::test(start_paused = true)]
async fn b12_the_rate_of_an_account_holds_too() {
    let bench = Arc::new(Bench::new([member("a").room(100).accounts(&["x"])]));
    bench.set_account("x", AccountSpec { rps: Some(10.0), ..AccountSpec::default() });
    let mut tasks = tokio::task::JoinSet::new();
    let began = bench.clock.now();
    for _ in 0..15 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    let ends = tasks.join_all().await;
    assert!(ends.iter().all(|end| *end == served("a")), "{ends:?}");
    let took = bench.clock.now().since(began);
    assert!((Duration::from_millis(1_400)..Duration::from_millis(1_500)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_waits_two_seconds_and_a_full_queue_not_at_all() {
    let policy = PoolPolicy { queue_max: Some(1), ..PoolPolicy::default() };
    let bench = Arc::new(Bench::with([member("a").room(1)], policy, 1));
    bench.script.set("a", [Play::Hang]);
    let spawn = || {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    let hanging = spawn();
    tokio::task::yield_now().await;
    let began = bench.clock.now();
    let waiting = spawn();
    tokio::task::yield_now().await;
    assert_eq!(bench.run().await.0, End::Stopped("congested"));
    assert_eq!(bench.clock.now(), began);
    assert_eq!(waiting.await.expect("it ends"), End::Stopped("congested"));
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(2));
    assert_eq!(
        bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures,
        0,
        "full is no failure"
    );
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn s11_a_waiter_that_leaves_costs_nothing_and_the_next_one_moves_up() {
    let bench = Arc::new(Bench::new([member("a").room(1)]));
    bench.script.set("a", [Play::After(Duration::from_secs(1))]);
    let spawn = || {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    let first = spawn();
    tokio::task::yield_now().await;
    let leaves = spawn();
    tokio::task::yield_now().await;
    let stays = spawn();
    tokio::task::yield_now().await;
    leaves.abort();
    assert_eq!(first.await.expect("it ends"), served("a"));
    assert_eq!(stays.await.expect("it ends"), served("a"));
    assert_eq!((bench.script.calls().len(), bench.pool().state.waiting()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lower_tier_serves_only_when_the_upper_is_full_or_unusable() {
    let bench = Arc::new(Bench::new([member("upper").room(2), member("lower").priority(1).room(10)]));
    ["upper", "lower"].iter().for_each(|name| bench.script.set(name, [Play::After(Duration::from_secs(1))]));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    let ends = tasks.join_all().await;
    assert_eq!(ends.iter().filter(|end| **end == served("upper")).count(), 2);
    assert_eq!(ends.iter().filter(|end| **end == served("lower")).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_short_rate_limit_is_waited_for() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [rate_limited(7), Play::Serve]);
    assert_eq!(bench.run().await.0, End::Stopped("rate_limited"));
    let began = bench.clock.now();
    assert_eq!(bench.run().await.0, served("a"));
    let waited = bench.clock.now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_millis(7_100)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn accounts_of_equal_priority_take_turns() {
    let bench = Bench::new([member("a").accounts(&["x", "y"])]);
    for _ in 0..10 {
        assert_eq!(bench.run().await.0, served("a"));
    }
    let used = bench.script.accounts_used();
    assert!(used.windows(2).all(|pair| pair[0] != pair[1]), "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn everyone_waits_out_a_short_rate_limit_not_only_the_first_in_the_queue() {
    let bench = Arc::new(Bench::new([member("a").accounts(&["x"])]));
    bench.script.set("a", [rate_limited(7), Play::Serve]);
    assert_eq!(bench.run().await.0, End::Stopped("rate_limited"));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    assert!(tasks.join_all().await.iter().all(|end| *end == served("a")));
}

#[tokio::test(start_paused = true)]
async fn whom_nobody_can_serve_is_told_at_once_though_others_wait_for_room() {
    let bench = Arc::new(Bench::new([member("a").room(1)]));
    bench.script.set("a", [Play::After(Duration::from_secs(1))]);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.pool().state.waiting(), 1);
    let mut job = bench.job(false);
    job.needs.thinking = true;
    let began = bench.clock.now();
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("unsupported"));
    assert_eq!(bench.clock.now(), began);
    assert!(tasks.join_all().await.iter().all(|end| *end == served("a")));
}

#[tokio::test(start_paused = true)]
async fn a_mix_of_reasons_is_nobody_available_and_names_each_member() {
    let bench = Bench::new([member("open"), member("refused").accounts(&["x"]), member("keyless")]);
    bench.open("open");
    bench.script.set("refused", [fail(Class::Auth)]);
    bench.script.set("keyless", [fail(Class::Misconfigured)]);
    while bench.run().await.0 != End::Stopped("no_available_model") {}
    let record = Record::default();
    let end = bench.engine.run(&*bench.script, &record, &bench.job(false), std::future::pending()).await;
    let Err(Unserved { stop: Stop::NoAvailableModel { retry_after, why }, begun: false, .. }) = end else {
        panic!("nobody can serve it")
    };
    let now = bench.clock.now();
    let why: Vec<_> = why.why.iter().map(|(name, why)| format!("{name}: {}", why.describe(now))).collect();
    assert_eq!(retry_after, Some(Duration::from_secs(10)));
    assert_eq!(
        why,
        [
            "keyless: cooling down (misconfigured) for 300 s",
            "open: breaker not admitting for 60 s",
            "refused: cooling down (auth) for 10 s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_strikes_while_waiting_for_room_is_exceeded() {
    let bench = Arc::new(Bench::new([member("a").room(1)]));
    bench.script.set("a", [Play::Hang]);
    let hanging = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    tokio::task::yield_now().await;
    let began = bench.clock.now();
    let mut job = bench.job(false);
    job.deadline = Some(Duration::from_millis(700));
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("deadline_exceeded"));
    assert_eq!(bench.clock.now().since(began), Duration::from_millis(700));
    hanging.abort();
}
