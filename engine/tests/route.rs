//! Retry, fallback, the queue and the budget, under paused time and a scripted upstream.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{AccountSpec, Beat, Bench, End, Play, Record, fail, member, quick_breaker, served};
use forebay_engine::attempt::{AttemptKind, AttemptStatus};
use forebay_engine::outcome::Failure;
use forebay_engine::policy::PoolPolicy;
use forebay_engine::stream::EventSource;
use forebay_engine::task::Served;
use forebay_engine::{BreakerState, Class, Clock};

const INITIAL: AttemptKind = AttemptKind::Initial;
const RETRY: AttemptKind = AttemptKind::Retry;
const FALLBACK: AttemptKind = AttemptKind::Fallback;

fn two() -> Bench {
    Bench::new([member("a"), member("b").priority(1)])
}

fn rate_limited(after: u64) -> Play {
    Play::Fail(Failure::new(Class::RateLimited, "429").with_retry_after(Some(Duration::from_secs(after))))
}

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
async fn what_blames_the_caller_stops_and_leaves_the_breaker_alone() {
    for class in [Class::Request, Class::Policy] {
        let bench = two();
        bench.script.set("a", [fail(class)]);
        let (end, _) = bench.run().await;
        assert_eq!((end, bench.script.calls().len()), (End::Stopped("invalid_request"), 1), "{class}");
        let view = bench.member("a").state.breaker.view(bench.clock.now());
        assert_eq!(view.consecutive_failures, 0, "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_never_sent_again() {
    let bench = two();
    bench.script.set("a", [fail(Class::Unknown)]);
    let (end, record) = bench.run().await;
    assert_eq!((end, bench.script.calls()), (End::Stopped("outcome_unknown"), vec!["a".to_owned()]));
    assert_eq!(record.ended()[0].status, AttemptStatus::OutcomeUnknown);
    assert!(record.ended()[0].outcome_unknown);
    assert_eq!(bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_timeout_is_an_unknown_outcome_and_a_connect_timeout_is_not() {
    let bench = two();
    bench.script.set("a", [Play::Hang]);
    let began = bench.clock.now();
    assert_eq!(bench.run().await.0, End::Stopped("outcome_unknown"));
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(120));

    let bench = two();
    bench.script.set("a", [Play::HangBeforeSending]);
    let (end, record) = bench.run().await;
    assert_eq!(end, served("b"));
    assert_eq!(record.ended()[0].failure.as_ref().map(|failure| failure.class), Some(Class::NotSent));
}

#[tokio::test(start_paused = true)]
async fn the_pool_may_opt_in_to_asking_again_after_an_unknown_outcome() {
    let bench = Bench::with(
        [member("a"), member("b").priority(1)],
        PoolPolicy { retry_unknown: true, ..PoolPolicy::default() },
        1,
    );
    bench.script.set("a", [fail(Class::Unknown)]);
    assert_eq!(bench.run().await.0, served("b"));
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
async fn accounts_of_equal_priority_take_turns() {
    let bench = Bench::new([member("a").accounts(&["x", "y"])]);
    for _ in 0..10 {
        assert_eq!(bench.run().await.0, served("a"));
    }
    let used = bench.script.accounts_used();
    assert!(used.windows(2).all(|pair| pair[0] != pair[1]), "{used:?}");
}

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
async fn an_auth_cooldown_doubles_to_an_hour_and_a_new_key_ends_it() {
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
    assert_eq!(bench.run().await.0, served("a"), "b14: the very next call uses the new key");
}

#[tokio::test(start_paused = true)]
async fn b15_a_late_refusal_of_the_old_key_cools_nothing() {
    let bench = Arc::new(Bench::new([member("a").accounts(&["x"])]));
    bench.script.set("a", [Play::FailAfter(Duration::from_secs(5), Class::Auth), Play::Serve]);
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
    bench.script.set("a", [Play::FailAfter(Duration::from_secs(1), Class::Auth)]);
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
async fn a_transition_names_the_attempt_that_caused_it() {
    let policy = PoolPolicy { breaker: quick_breaker(), ..PoolPolicy::default() };
    let bench = Bench::with([member("a"), member("b").priority(1)], policy, 1);
    bench.script.set("a", [fail(Class::Upstream)]);
    assert_eq!(bench.run().await.0, served("b"));
    let moves = bench.heard.moves();
    let [moved] = &moves[..] else { panic!("one transition, not {moves:?}") };
    assert_eq!((&*moved.name, moved.transition.to, moved.attempt), ("a", BreakerState::Open, Some(1)));
    assert_eq!(moved.task.as_deref(), Some("task"));
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
async fn s11_leaving_drops_the_call_at_once_and_frees_its_permits() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [Play::Hang]);
    let job = bench.job(false);
    let began = bench.clock.now();
    let (end, record) = bench.run_job(&job, tokio::time::sleep(Duration::from_millis(30))).await;
    assert_eq!(end, End::Stopped("cancelled"));
    assert_eq!(bench.clock.now().since(began), Duration::from_millis(30));
    let ended = &record.ended()[0];
    assert_eq!((ended.status, ended.outcome_unknown), (AttemptStatus::Cancelled, true));
    let a = bench.member("a");
    assert_eq!((a.state.in_flight.taken(), a.accounts[0].account.state.in_flight.taken()), (0, 0));
    assert_eq!(a.state.breaker.view(bench.clock.now()).consecutive_failures, 0);
}

#[tokio::test(start_paused = true)]
async fn s11_leaving_during_a_back_off_sends_nothing_more() {
    let bench = Bench::new([member("a")]);
    bench.script.set("a", [fail(Class::Upstream)]);
    let job = bench.job(false);
    let (end, record) = bench.run_job(&job, tokio::time::sleep(Duration::from_millis(300))).await;
    assert_eq!((end, bench.script.calls().len()), (End::Stopped("cancelled"), 1));
    assert_eq!(record.ended().len(), 1, "the attempt before the back-off is reported once");
}

#[tokio::test(start_paused = true)]
async fn b4_b6_a_probe_whose_caller_leaves_or_whose_task_panics_frees_its_slot() {
    let policy = PoolPolicy { breaker: quick_breaker(), ..PoolPolicy::default() };
    let bench = Arc::new(Bench::with([member("a")], policy, 1));
    bench.open("a");
    bench.clock.advance(Duration::from_secs(60));
    bench.script.set("a", [Play::Hang, Play::Panic, Play::Serve]);
    let job = bench.job(false);
    let leave = tokio::time::sleep(Duration::from_millis(1));
    assert_eq!(bench.run_job(&job, leave).await.0, End::Stopped("cancelled"));
    let state = || bench.member("a").state.breaker.view(bench.clock.now()).state;
    assert_eq!(state(), BreakerState::HalfOpen);
    let panics = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    assert!(panics.await.is_err());
    assert_eq!(state(), BreakerState::HalfOpen);
    assert_eq!(bench.run().await.0, served("a"), "the next request probes");
    assert_eq!(state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn b5_a_probe_that_ends_in_the_callers_fault_counts_as_nothing() {
    let bench = Bench::new([member("a")]);
    bench.open("a");
    bench.clock.advance(Duration::from_secs(60));
    bench.script.set("a", [fail(Class::Request), Play::Serve]);
    assert_eq!(bench.run().await.0, End::Stopped("invalid_request"));
    assert_eq!(bench.member("a").state.breaker.view(bench.clock.now()).state, BreakerState::HalfOpen);
    assert_eq!(bench.run().await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn b8_b13_an_edit_during_a_back_off_applies_and_keeps_the_breaker() {
    let bench = Arc::new(Bench::new([member("a"), member("b").priority(1)]));
    bench.set_policy(|policy| policy.switch_first = false);
    bench.script.set("a", [fail(Class::Upstream)]);
    let task = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let a = bench.member("a");
    assert_eq!(a.state.breaker.view(bench.clock.now()).consecutive_failures, 1);
    bench.edit(|specs| specs.retain(|spec| spec.name != "a"));
    let (end, _) = task.await.expect("it ends");
    assert_eq!((end, bench.script.calls()), (served("b"), vec!["a".to_owned(), "b".to_owned()]));
    bench.edit(|specs| specs.push(member("a")));
    assert_eq!(
        bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures,
        1,
        "state is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn b9_one_failure_disables_nobody_and_a_success_clears_it() {
    let bench = Bench::new([member("a")]);
    bench.script.set("a", [fail(Class::Upstream), Play::Serve]);
    assert_eq!(bench.run().await.0, served("a"));
    let view = bench.member("a").state.breaker.view(bench.clock.now());
    assert_eq!((view.state, view.consecutive_failures), (BreakerState::Closed, 0));
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
async fn all_open_is_503_with_the_earliest_recovery_and_nothing_is_sent() {
    let bench = two();
    bench.open("a");
    bench.clock.advance(Duration::from_secs(20));
    bench.open("b");
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(false), std::future::pending()).await;
    let Err(unserved) = served else { panic!("nobody could serve it") };
    let forebay_engine::task::Stop::NoAvailableModel { retry_after, why } = unserved.stop else {
        panic!("{:?}", unserved.stop)
    };
    assert_eq!(retry_after, Some(Duration::from_secs(40)));
    assert_eq!(why.why.len(), 2);
    assert!(bench.script.calls().is_empty() && !unserved.begun);
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
async fn a_feature_that_no_member_has_is_named() {
    let bench = two();
    let mut job = bench.job(false);
    job.needs.thinking = true;
    assert_eq!(bench.run_job(&job, std::future::pending()).await.0, End::Stopped("unsupported"));
    bench.edit(|specs| specs[1].features.thinking = true);
    assert_eq!(bench.run_job(&job, std::future::pending()).await.0, served("b"));
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

async fn read_all<U>(served: Served<U>) -> (Vec<&'static str>, Option<Failure>)
where
    U: forebay_engine::Upstream,
    U::Stream: EventSource<Event = &'static str>,
{
    let Served::Stream(mut live) = served else { panic!("a stream was asked for") };
    let mut texts = Vec::new();
    loop {
        match live.next().await {
            Ok(Some(text)) => texts.push(text),
            Ok(None) => return (texts, None),
            Err(failure) => return (texts, Some(failure)),
        }
    }
}

fn cut() -> Failure {
    Failure::new(Class::Unknown, "cut")
}

async fn stream(
    bench: &Bench,
    beats: Vec<Result<Beat, Failure>>,
) -> (Vec<&'static str>, Option<Failure>, Record) {
    bench.script.set("a", [Play::Stream(beats)]);
    bench.script.set("b", [Play::Stream(vec![Ok(Beat::Text("from b"))])]);
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(true), std::future::pending()).await;
    let (texts, failure) = read_all(served.expect("a stream")).await;
    (texts, failure, record)
}

#[tokio::test(start_paused = true)]
async fn s1_s2_s3_before_its_first_content_a_stream_may_fail_unseen() {
    for beats in [
        vec![Err(cut())],
        vec![Ok(Beat::Role), Err(cut())],
        vec![Ok(Beat::Role), Ok(Beat::Wait(3_600_000))],
        vec![Ok(Beat::Quiet), Ok(Beat::Role)],
        vec![Err(Failure::new(Class::RateLimited, "an error event"))],
    ] {
        let bench = two();
        let (texts, failure, record) = stream(&bench, beats.clone()).await;
        assert_eq!((texts, failure), (vec!["from b"], None), "{beats:?}");
        assert_eq!(record.kinds(), [INITIAL, FALLBACK], "{beats:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s2_silence_before_content_ends_at_the_first_packet_timeout() {
    let bench = two();
    let began = bench.clock.now();
    let (texts, ..) = stream(&bench, vec![Ok(Beat::Role), Ok(Beat::Wait(3_600_000))]).await;
    assert_eq!(texts, ["from b"]);
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn s4_s5_after_its_first_content_a_death_is_told_and_nothing_is_glued_on() {
    for death in [Err(cut()), Ok(Beat::Wait(3_600_000))] {
        let bench = two();
        let (texts, failure, record) =
            stream(&bench, vec![Ok(Beat::Role), Ok(Beat::Text("half")), death]).await;
        assert_eq!(texts, ["role", "half"]);
        assert_eq!(failure.map(|failure| failure.class), Some(Class::Unknown));
        assert_eq!((record.kinds(), bench.script.calls()), (vec![INITIAL], vec!["a".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_committed_stream_may_be_silent_for_a_minute_and_without_content_for_three() {
    let alive = |n| std::iter::repeat_n([Ok(Beat::Wait(50_000)), Ok(Beat::Quiet)], n).flatten();
    let bench = two();
    let began = bench.clock.now();
    let beats = [Ok(Beat::Text("x"))].into_iter().chain(alive(10)).collect();
    let (_, failure, _) = stream(&bench, beats).await;
    assert!(failure.expect("it is ended").message.contains("no content"));
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(180));

    // S13: content every fifty seconds, for ten minutes and more.
    let beats = (0..15).flat_map(|_| [Ok(Beat::Text("x")), Ok(Beat::Wait(50_000))]).collect();
    let (texts, failure, _) = stream(&two(), beats).await;
    assert_eq!((texts.len(), failure), (15, None));
}

#[tokio::test(start_paused = true)]
async fn a_stream_succeeds_at_its_first_content_and_a_later_death_is_one_more_failure() {
    let bench = two();
    bench.script.set("a", [Play::Stream(vec![Ok(Beat::Text("x")), Err(cut())])]);
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(true), std::future::pending()).await;
    let Ok(Served::Stream(mut live)) = served else { panic!("a stream") };
    let failures = || bench.member("a").state.breaker.view(bench.clock.now()).consecutive_failures;
    assert_eq!((failures(), bench.member("a").state.in_flight.taken()), (0, 1));
    assert_eq!(live.next().await, Ok(Some("x")));
    let failure = live.next().await.expect_err("it dies");
    let ended = live.end(&forebay_engine::live::StreamEnd::Died(failure), None, None);
    assert_eq!((failures(), bench.member("a").state.in_flight.taken()), (1, 0));
    assert_eq!((ended.status, ended.outcome_unknown), (AttemptStatus::Failed, true));
}
