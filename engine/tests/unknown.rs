//! Outcomes that nobody can know: nothing is sent again.

use std::time::Duration;

use crate::support::{Bench, End, Play, fail, member, served, two};
use forebay_engine::attempt::AttemptStatus;
use forebay_engine::policy::PoolPolicy;
use forebay_engine::{Class, Clock};

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
