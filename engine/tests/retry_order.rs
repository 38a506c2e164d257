//! What follows a definite failure, and what bounds it: section 5 of the engine's design.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, End, FALLBACK, INITIAL, Play, RETRY, fail, member, served, two};
use forebay_engine::policy::PoolPolicy;
use forebay_engine::{Class, Clock};

#[tokio::test(start_paused = true)]
async fn a_definite_failure_goes_to_the_next_member_at_once() {
    for class in [
        Class::Upstream,
        Class::NotSent,
        Class::BadAnswer,
        Class::RateLimited,
        Class::Auth,
        Class::Quota,
        Class::Misconfigured,
    ] {
        let bench = two();
        bench.script.set("a", [fail(class)]);
        let began = bench.clock.now();
        let (end, record) = bench.run().await;
        assert_eq!((end, record.kinds()), (served("b"), vec![INITIAL, FALLBACK]), "{class}");
        assert_eq!(bench.clock.now().since(began), Duration::ZERO, "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn alone_a_model_is_retried_after_one_and_three_seconds() {
    let bench = Bench::new([member("a")]);
    bench.script.set("a", [fail(Class::Upstream), fail(Class::Upstream), Play::Serve]);
    let (end, record) = bench.run().await;
    assert_eq!((end, record.kinds()), (served("a"), vec![INITIAL, RETRY, RETRY]));
    let waits = record.waits();
    assert!((Duration::from_millis(800)..=Duration::from_millis(1_200)).contains(&waits[1]), "{waits:?}");
    assert!((Duration::from_millis(2_400)..=Duration::from_millis(3_600)).contains(&waits[2]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn the_caps_hold_three_models_and_five_requests() {
    let names = ["a", "b", "c", "d"];
    let bench = Bench::new(names.iter().zip(0..).map(|(name, priority)| member(name).priority(priority)));
    names.iter().for_each(|name| bench.script.set(name, [fail(Class::Upstream)]));
    let (end, record) = bench.run().await;
    assert_eq!(end, End::Stopped("upstream_failed"));
    assert_eq!(record.kinds(), [INITIAL, FALLBACK, FALLBACK, RETRY, RETRY]);
    assert_eq!(bench.script.calls(), ["a", "b", "c", "a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn b18_the_healthy_third_is_asked_before_the_caps_are_used_up() {
    for switch_first in [true, false] {
        let bench = Bench::with(
            [member("a"), member("b").priority(1), member("c").priority(2)],
            PoolPolicy { switch_first, ..PoolPolicy::default() },
            1,
        );
        bench.script.set("a", [fail(Class::Upstream)]);
        bench.script.set("b", [fail(Class::Upstream)]);
        assert_eq!(bench.run().await.0, served("c"), "switch_first {switch_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_retries_are_allowed_each_untried_member_keeps_a_request() {
    let bench = Bench::with(
        [member("a"), member("b").priority(1), member("c").priority(2)],
        PoolPolicy { switch_first: false, ..PoolPolicy::default() },
        1,
    );
    bench.set_routing(|routing| {
        let mut text = routing.retry(forebay_engine::Capability::Text).clone();
        text.retries = 4;
        routing.set_retry(forebay_engine::Capability::Text, text);
    });
    bench.script.set("a", [fail(Class::Upstream)]);
    bench.script.set("b", [fail(Class::Upstream)]);
    assert_eq!(bench.run().await.0, served("c"));
    assert_eq!(bench.script.calls(), ["a", "a", "a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn without_switch_first_the_same_model_is_retried_before_another() {
    let bench = Bench::with(
        [member("a"), member("b").priority(1)],
        PoolPolicy { switch_first: false, ..PoolPolicy::default() },
        1,
    );
    bench.script.set("a", [fail(Class::Upstream)]);
    let (end, record) = bench.run().await;
    assert_eq!((end, record.kinds()), (served("b"), vec![INITIAL, RETRY, RETRY, FALLBACK]));
}

#[tokio::test(start_paused = true)]
async fn another_account_of_the_same_model_comes_first_and_only_one() {
    let bench = Bench::new([member("a").accounts(&["x", "y", "z"]), member("b").priority(1)]);
    bench.script.set("a", [fail(Class::Auth)]);
    let (end, record) = bench.run().await;
    assert_eq!((end, record.kinds()), (served("b"), vec![INITIAL, RETRY, FALLBACK]));
    let used = bench.script.accounts_used();
    assert_ne!(used[0], used[1]);
    let cooling = bench
        .member("a")
        .accounts
        .iter()
        .filter(|b| b.account.state.cooldown.is_cooling(bench.clock.now()))
        .count();
    assert_eq!(cooling, 2);
}

#[tokio::test(start_paused = true)]
async fn b16_many_first_requests_meet_a_dead_member_and_all_are_answered() {
    let bench = Arc::new(Bench::new([member("dead").room(100), member("healthy").room(100)]));
    bench.script.set("dead", [fail(Class::NotSent)]);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    assert!(tasks.join_all().await.iter().all(|end| *end == served("healthy")));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_waits_and_the_call() {
    let bench = Bench::new([member("a")]);
    bench.script.set("a", [fail(Class::Upstream)]);
    let mut job = bench.job(false);
    job.deadline = Some(Duration::from_millis(500));
    let began = bench.clock.now();
    assert_eq!(bench.run_job(&job, std::future::pending()).await.0, End::Stopped("upstream_failed"));
    assert_eq!(bench.clock.now(), began, "a wait that would pass the deadline is not begun");

    bench.script.set("a", [Play::Hang]);
    assert_eq!(bench.run_job(&job, std::future::pending()).await.0, End::Stopped("outcome_unknown"));
    assert_eq!(bench.clock.now().since(began), Duration::from_millis(500));

    bench.script.set("a", [Play::HangBeforeSending]);
    assert_eq!(bench.run_job(&job, std::future::pending()).await.0, End::Stopped("deadline_exceeded"));
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_stops_a_storm_and_never_the_first_fallback_to_a_closed_member() {
    let bench = Bench::new([member("a")]);
    bench.script.set("a", [fail(Class::Upstream)]);
    bench.set_policy(|policy| policy.breaker.failure_threshold = u32::MAX);
    bench.set_routing(|routing| {
        let mut text = routing.retry(forebay_engine::Capability::Text).clone();
        text.waits = vec![Duration::ZERO];
        routing.set_retry(forebay_engine::Capability::Text, text);
    });
    for _ in 0..1_000 {
        bench.run().await;
    }
    let retries = bench.script.calls().len() - 1_000;
    // 20 % of the traffic of ten seconds, and ten a second.
    assert!((290..=310).contains(&retries), "{retries}");

    let bench = two();
    bench.script.set("a", [fail(Class::NotSent)]);
    bench.set_policy(|policy| policy.breaker.failure_threshold = u32::MAX);
    for _ in 0..1_000 {
        assert_eq!(bench.run().await.0, served("b"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_fallback_names_who_was_passed_over() {
    let bench = Bench::new([member("a"), member("b").priority(1), member("c").priority(2)]);
    bench.open("b");
    bench.script.set("a", [fail(Class::Upstream)]);
    let (end, record) = bench.run().await;
    assert_eq!(end, served("c"));
    let reason = &record.reasons()[1];
    assert!(*reason == "fallback after upstream; passed over b: breaker not admitting for 60 s", "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_gone_ends_the_task() {
    let bench = Arc::new(two());
    bench.remove_pool();
    assert_eq!(bench.run().await.0, End::Stopped("not_found"));

    let bench = Arc::new(Bench::new([member("a")]));
    bench.script.set("a", [fail(Class::Upstream)]);
    let task = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.remove_pool();
    assert_eq!(task.await.expect("it ends"), End::Stopped("upstream_failed"));
}

#[tokio::test(start_paused = true)]
async fn another_account_of_the_same_model_is_in_the_retry_budget_too() {
    let bench = Bench::new([member("a").accounts(&["x", "y"])]);
    bench.script.set("a", [fail(Class::RateLimited)]);
    bench.set_routing(|routing| {
        routing.retry_budget = 0.0;
        routing.cooldown.rate_limited = Duration::ZERO;
        let text = routing.retry(forebay_engine::Capability::Text).clone();
        let none = forebay_engine::policy::RetryPolicy { retries: 0, ..text };
        routing.set_retry(forebay_engine::Capability::Text, none);
    });
    for _ in 0..300 {
        bench.run().await;
    }
    assert_eq!(bench.script.calls().len(), 400, "ten a second, of ten seconds");
}
