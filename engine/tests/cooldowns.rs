//! Who is set aside, for how long, and what ends it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{AccountSpec, Bench, End, Play, fail, fail_after, member, rate_limited, served, two};
use forebay_engine::{Class, Clock, Failure};

#[tokio::test(start_paused = true)]
async fn b2_a_member_that_says_come_back_later_is_left_alone_that_long() {
    let bench = Bench::new([member("a").accounts(&["x"]), member("b").priority(1).accounts(&["y"])]);
    bench.script.set("a", [rate_limited(107), Play::Serve]);
    assert_eq!(bench.run().await.0, served("b"));
    bench.clock.advance(Duration::from_secs(106));
    assert_eq!(bench.run().await.0, served("b"));
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(bench.run().await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn b10_a_429_without_retry_after_cools_sixty_seconds() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [fail(Class::RateLimited)]);
    assert_eq!(bench.run().await.0, End::Stopped("rate_limited"));
    let cooldown = bench.member("a").accounts[0].cooldown.until();
    assert_eq!(bench.clock.now().until(cooldown), Duration::from_secs(60));
    assert_eq!(bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn b3_all_rate_limited_is_429_and_a_bad_key_among_them_changes_nothing() {
    let bench = Bench::new([
        member("a").accounts(&["x"]),
        member("b").accounts(&["y"]),
        member("c").accounts(&["z"]),
    ]);
    bench.script.set("a", [rate_limited(40)]);
    bench.script.set("b", [rate_limited(50)]);
    bench.script.set("c", [fail(Class::Auth)]);
    while bench.run().await.0 != End::Stopped("rate_limited") {}
    let before = bench.script.calls().len();
    assert_eq!(bench.run().await.0, End::Stopped("rate_limited"));
    assert_eq!(bench.script.calls().len(), before, "nothing was sent");

    let bench = Bench::new([member("a").accounts(&["x"]), member("b").accounts(&["y"])]);
    bench.script.set("a", [fail(Class::Auth)]);
    bench.script.set("b", [fail(Class::Auth)]);
    assert_eq!(bench.run().await.0, End::Stopped("upstream_failed"));
    assert_eq!(bench.run().await.0, End::Stopped("no_available_model"));
}

#[tokio::test(start_paused = true)]
async fn b14_an_auth_cooldown_doubles_to_an_hour_and_a_new_key_ends_it() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [fail(Class::Auth)]);
    let mut spans = Vec::new();
    for _ in 0..11 {
        bench.run().await;
        let until = bench.member("a").accounts[0].account.state.cooldown.until();
        spans.push(bench.clock.now().until(until).as_secs());
        bench.clock.advance(bench.clock.now().until(until));
    }
    assert_eq!(spans, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600]);

    bench.script.set("a", [Play::Serve]);
    bench.set_account("x", AccountSpec { key_revision: 2, ..AccountSpec::default() });
    assert_eq!(bench.run().await.0, served("a"), "the very next call uses the new key");
}

#[tokio::test(start_paused = true)]
async fn b15_a_late_refusal_of_the_old_key_cools_nothing() {
    let bench = Arc::new(Bench::new([member("a").accounts(&["x"])]));
    bench.script.set("a", [fail_after(Duration::from_secs(5), Class::Auth), Play::Serve]);
    // A call with the old key is out, the key is replaced, and then the old one is refused.
    let late = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.set_account("x", AccountSpec { key_revision: 2, ..AccountSpec::default() });
    assert_eq!(bench.run().await.0, served("a"));
    let _ = late.await;
    let account = bench.member("a").accounts[0].account.state.clone();
    assert!(!account.cooldown.is_cooling(bench.clock.now()));
    assert_eq!(bench.run().await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn two_refusals_of_calls_that_were_out_together_double_nothing() {
    let bench = Arc::new(Bench::new([member("a").accounts(&["x"])]));
    bench.script.set("a", [fail_after(Duration::from_secs(1), Class::Auth)]);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    tasks.join_all().await;
    let until = bench.member("a").accounts[0].account.state.cooldown.until();
    assert_eq!(bench.clock.now().until(until), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn b17_a_model_without_an_account_is_set_aside_like_any_other() {
    let bench = two();
    bench.script.set("a", [fail(Class::Misconfigured), Play::Serve]);
    assert_eq!(bench.run().await.0, served("b"));
    bench.clock.advance(Duration::from_secs(299));
    assert_eq!(bench.run().await.0, served("b"));
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(bench.run().await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn b1_of_two_429s_at_the_same_moment_the_later_deadline_holds_in_either_order() {
    for [first, second] in [[1, 60], [60, 1]] {
        let bench = Arc::new(Bench::new([member("a").accounts(&["x"])]));
        bench.set_routing(|routing| routing.max_requests = 1);
        let refuse = |after: u64| {
            let after = Some(Duration::from_secs(after));
            Play::FailAfter(
                Duration::from_millis(50),
                Failure::new(Class::RateLimited, "429").with_retry_after(after),
            )
        };
        bench.script.set("a", [refuse(first), refuse(second)]);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let bench = bench.clone();
            tasks.spawn(async move { bench.run().await.0 });
        }
        tasks.join_all().await;
        assert_eq!(bench.script.calls().len(), 2, "both were out together");
        let until = bench.member("a").accounts[0].cooldown.until();
        assert_eq!(bench.clock.now().until(until), Duration::from_secs(60), "{first}, then {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn b14_a_disabled_account_is_used_again_by_the_very_next_call_after_its_key_is_replaced() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.set_account("x", AccountSpec { is_enabled: false, ..AccountSpec::default() });
    assert_eq!(bench.run().await.0, End::Stopped("no_available_model"));
    bench.set_account("x", AccountSpec { key_revision: 2, ..AccountSpec::default() });
    assert_eq!(bench.run().await.0, served("a"));
}
