//! Breakers under real tasks: probes, edits, late results, and callers that leave.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    Beat, Bench, End, Play, Record, fail, fail_after, load, member, quick_breaker, served, two,
};
use forebay_engine::attempt::AttemptStatus;
use forebay_engine::live::StreamEnd;
use forebay_engine::policy::PoolPolicy;
use forebay_engine::task::Served;
use forebay_engine::{BreakerState, Class, Clock};

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
async fn a_transition_names_the_attempt_that_caused_it() {
    let policy = PoolPolicy { breaker: quick_breaker(), ..PoolPolicy::default() };
    let bench = Bench::with([member("a"), member("b").priority(1)], policy, 1);
    bench.script.set("a", [fail(Class::Upstream)]);
    assert_eq!(bench.run().await.0, served("b"));
    let moves = bench.heard.moves();
    let [moved] = &moves[..] else { panic!("one transition, not {moves:?}") };
    assert_eq!((&*moved.name, moved.transition.to, moved.attempt), ("a", BreakerState::Open, Some(1)));
    assert_eq!((moved.task.as_deref(), moved.class), (Some("task"), Some(Class::Upstream)));
    bench.clock.advance(Duration::from_secs(60));
    bench.script.set("a", [Play::Serve]);
    assert_eq!(bench.run().await.0, served("a"));
    let moves = bench.heard.moves();
    let later: Vec<_> = moves[1..].iter().map(|moved| (moved.transition.to, moved.class)).collect();
    assert_eq!(later, [(BreakerState::HalfOpen, None), (BreakerState::Closed, None)]);
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
async fn b7_failures_that_arrive_when_a_probe_is_out_change_nothing() {
    let bench = Arc::new(Bench::new([member("a").room(100)]));
    let slow = fail_after(Duration::from_secs(90), Class::Request);
    let late = fail_after(Duration::from_secs(90), Class::Upstream);
    bench.set_routing(|routing| routing.max_requests = 1);
    bench.script.set("a", std::iter::repeat_n(late, 10).chain([slow, Play::After(Duration::from_secs(60))]));
    let spawn = || {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    let mut before: Vec<_> = (0..11).map(|_| spawn()).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.open("a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let probe = spawn();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(before.drain(..).all(|task| task.is_finished()));
    let view = bench.member("a").state.breaker.view(bench.clock.now());
    assert_eq!(view.state, BreakerState::HalfOpen, "the probe alone decides");
    assert_eq!(probe.await.expect("it ends"), served("a"));
    assert_eq!(bench.member("a").state.breaker.view(bench.clock.now()).state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn b13_a_pool_edited_under_load_fails_no_request_and_keeps_its_breakers() {
    let bench = Arc::new(Bench::new([member("a"), member("b")]));
    ["a", "b", "c"].iter().for_each(|name| bench.script.set(name, [Play::After(Duration::from_millis(80))]));
    bench.open("b");
    let editor = {
        let bench = bench.clone();
        tokio::spawn(async move {
            for n in 0..40_u32 {
                tokio::time::sleep(Duration::from_millis(250)).await;
                bench.set_policy(|policy| policy.breaker.failure_threshold = 1 + n);
                bench.edit(|specs| {
                    specs[0].weight = 1 + i64::from(n);
                    specs.truncate(2);
                    specs.extend((n % 2 == 0).then(|| member("c").weight(5)));
                });
            }
        })
    };
    let ends = load(&bench, 40, Duration::from_secs(10)).await;
    editor.await.expect("it ends");
    assert!(ends.iter().all(|end| matches!(end, End::Served(_))), "{ends:?}");
    let calls = bench.script.calls();
    assert!(calls.contains(&"c".to_owned()) && !calls.contains(&"b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn b8_a_member_taken_out_gets_no_further_request_and_what_it_has_in_flight_finishes() {
    let bench = Arc::new(Bench::new([member("a"), member("b").priority(1)]));
    bench.script.set("a", [Play::After(Duration::from_secs(2))]);
    let out = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run().await.0 })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.edit(|specs| specs.retain(|spec| spec.name != "a"));
    assert_eq!(bench.run().await.0, served("b"));
    assert_eq!(out.await.expect("it ends"), served("a"));
}

#[tokio::test(start_paused = true)]
async fn s11_leaving_before_a_streams_content_frees_everything_and_is_said_to_be_unknown() {
    for play in [Play::Hang, Play::Stream(vec![Ok(Beat::Role), Ok(Beat::Wait(60_000))])] {
        let bench = Bench::new([member("a").accounts(&["x"])]);
        bench.script.set("a", [play]);
        let (end, record) =
            bench.run_job(&bench.job(true), tokio::time::sleep(Duration::from_millis(30))).await;
        assert_eq!(end, End::Stopped("cancelled"));
        assert!(record.ended()[0].outcome_unknown);
        let a = bench.member("a");
        assert_eq!((a.state.in_flight.taken(), a.accounts[0].account.state.in_flight.taken()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn s11_leaving_amid_a_stream_frees_everything_and_blames_nobody() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [Play::Stream(vec![Ok(Beat::Text("x")), Ok(Beat::Wait(60_000))])]);
    let record = Record::default();
    let served = bench.engine.run(&*bench.script, &record, &bench.job(true), std::future::pending()).await;
    let Ok(Served::Stream(live)) = served else { panic!("a stream") };
    let ended = live.end(&StreamEnd::CallerLeft, None, None);
    assert_eq!((ended.status, ended.outcome_unknown), (AttemptStatus::Cancelled, true));
    let a = bench.member("a");
    assert_eq!((a.state.in_flight.taken(), a.accounts[0].account.state.in_flight.taken()), (0, 0));
    assert_eq!(bench.failures("a"), 0);
}
