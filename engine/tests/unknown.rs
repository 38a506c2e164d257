//! Outcomes that nobody can know: nothing is sent again.

use std::time::Duration;

use crate::support::{Bench, End, FALLBACK, INITIAL, Play, fail, member, served, two};
use forebay_engine::attempt::AttemptStatus;
use forebay_engine::policy::PoolPolicy;
use forebay_engine::{Capability, Class, Clock};

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

/// A time-out while reading, a video without an id, an image that is none: one upstream request in all.
#[tokio::test(start_paused = true)]
async fn m2_m3_m10_a_whole_answer_that_may_have_been_made_is_not_asked_for_again() {
    for capability in Capability::ALL {
        for play in [Play::Hang, fail(Class::Unknown)] {
            let bench = Bench::new([member("a"), member("b"), member("c").priority(1)]);
            bench.set_capability(capability);
            bench.script.set("a", [play.clone()]);
            bench.script.set("b", [play]);
            let (end, record) = bench.run().await;
            assert_eq!(end, End::Stopped("outcome_unknown"), "{capability}");
            assert_eq!(bench.script.calls().len(), 1, "{capability}");
            let ended = &record.ended()[0];
            assert!(ended.outcome_unknown && ended.status == AttemptStatus::OutcomeUnknown, "{capability}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_sentence_may_be_paid_for_twice() {
    for capability in Capability::ALL {
        for stream in [false, true] {
            let bench = two();
            bench.set_capability(capability);
            bench.set_policy(|policy| policy.retry_unknown = true);
            bench.script.set("a", [fail(Class::Unknown)]);
            let (end, _) = bench.run_on(&bench.job(stream)).await;
            let is_text = capability == Capability::Text;
            let expected = if is_text { served("b") } else { End::Stopped("outcome_unknown") };
            assert_eq!(end, expected, "{capability}, streamed: {stream}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_text_whose_last_chance_was_unknown_is_unknown() {
    let bench = two();
    ["a", "b"].iter().for_each(|name| bench.script.set(name, [fail(Class::Unknown)]));
    let (end, record) = bench.run_on(&bench.job(true)).await;
    assert_eq!((end, record.kinds()), (End::Stopped("outcome_unknown"), vec![INITIAL, FALLBACK]));
}
