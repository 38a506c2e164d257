//! A model asked for by name: when another one may serve in its place, and which.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Beat, Bench, End, Play, cut, fail, fail_after, member, rate_limited, served};
use forebay_engine::{Capability, Class, Clock, ModelId};

/// `a` may be stood in for by `b`, then by `c`.
fn abc() -> Bench {
    let bench = Bench::new(["a", "b", "c"].map(member));
    bench.set_policy(|policy| policy.fallback_on_failure = true);
    bench.set_candidates(&["b", "c"]);
    bench
}

#[tokio::test(start_paused = true)]
async fn b3_out_by_a_long_rate_limit_it_is_stood_in_for_and_a_short_one_is_waited_for() {
    for (after, expected) in [(100, "b fallback"), (5, "a initial")] {
        let bench = abc();
        bench.set_routing(|routing| routing.max_requests = 1);
        bench.script.set("a", [rate_limited(after), Play::Serve]);
        bench.run_on(&bench.job_for("a", false)).await;
        let (_, record) = bench.run_on(&bench.job_for("a", false)).await;
        assert_eq!(record.steps(), [expected], "{after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn full_it_is_waited_for_and_then_stood_in_for() {
    let bench = Arc::new(abc());
    bench.edit(|specs| specs[0] = member("a").room(1));
    bench.script.set("a", [Play::Hang]);
    let hanging = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run_on(&bench.job_for("a", false)).await.0 })
    };
    tokio::task::yield_now().await;
    let began = bench.clock.now();
    let (end, record) = bench.run_on(&bench.job_for("a", false)).await;
    assert_eq!((end, record.steps()), (served("b"), vec!["b fallback".to_owned()]));
    assert_eq!(bench.clock.now().since(began), Duration::from_secs(2), "first its queue");
    assert_eq!(record.waits(), [Duration::from_secs(2)]);
    assert_eq!(record.reasons(), ["fallback from a: full"]);
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn candidates_are_looked_up_at_the_moment_they_are_needed() {
    let bench = Arc::new(abc());
    bench.script.set("a", [fail(Class::Upstream)]);
    let task = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run_on(&bench.job_for("a", false)).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.set_candidates(&["c"]);
    let (end, record) = task.await.expect("it ends");
    assert_eq!((end, record.steps().last().map(String::as_str)), (served("c"), Some("c fallback")));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_must_have_what_the_request_needs() {
    let bench = abc();
    bench.script.set("a", [fail(Class::Misconfigured)]);
    bench.edit(|specs| specs[1].features.tools = false);
    let mut job = bench.job_for("a", false);
    job.needs.tools = true;
    assert_eq!(bench.run_on(&job).await.0, served("c"));
}

#[tokio::test(start_paused = true)]
async fn a_feature_that_the_named_model_lacks_is_the_callers_to_mend() {
    let bench = abc();
    bench.edit(|specs| specs[1].features.thinking = true);
    let mut job = bench.job_for("a", false);
    job.needs.thinking = true;
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("unsupported"));
}

#[tokio::test(start_paused = true)]
async fn m2_an_unknown_outcome_of_a_whole_answer_asks_for_no_candidate_whatever_the_capability() {
    for capability in Capability::ALL {
        let bench = Bench::new(["a", "b"].map(member));
        bench.set_capability(capability);
        bench.set_policy(|policy| (policy.fallback_on_failure, policy.retry_unknown) = (true, true));
        bench.script.set("a", [fail(Class::Unknown)]);
        // The bench's directory panics when it is asked for candidates.
        let (end, record) = bench.run_on(&bench.job_for("a", false)).await;
        assert_eq!(end, End::Stopped("outcome_unknown"), "{capability}");
        assert_eq!(record.steps(), ["a initial"], "{capability}");
    }
}

#[tokio::test(start_paused = true)]
async fn s1_a_streamed_text_that_is_cut_before_its_content_goes_on_only_with_leave() {
    for play in [Play::Stream(vec![Ok(Beat::Role), Err(cut())]), Play::Hang] {
        let bench = abc();
        bench.script.set("a", [play.clone()]);
        let (end, record) = bench.run_on(&bench.job_for("a", true)).await;
        assert_eq!(
            (end, record.steps()),
            (served("b"), vec!["a initial".to_owned(), "b fallback".to_owned()])
        );
        assert!(record.ended()[0].outcome_unknown);

        let bench = Bench::new(["a", "b"].map(member));
        bench.set_policy(|policy| policy.retry_unknown = true);
        bench.script.set("a", [play]);
        let (end, record) = bench.run_on(&bench.job_for("a", true)).await;
        assert_eq!((end, record.steps()), (End::Stopped("outcome_unknown"), vec!["a initial".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_models_is_told_and_changes_nothing_for_the_next_task() {
    let bench = abc();
    bench.script.set("a", [fail(Class::Misconfigured), Play::Serve]);
    assert_eq!(bench.run_on(&bench.job_for("a", false)).await.0, served("b"));
    assert_eq!(bench.heard.switches(), ["-: a → b after misconfigured"]);
    bench.clock.advance(Duration::from_secs(300));
    assert_eq!(bench.run_on(&bench.job_for("a", false)).await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_is_free_and_further_ones_are_in_the_retry_budget() {
    let bench = abc();
    bench.set_policy(|policy| policy.breaker.failure_threshold = u32::MAX);
    bench.set_routing(|routing| routing.retry_budget = 0.0);
    bench.script.set("a", [fail(Class::Misconfigured)]);
    bench.script.set("b", [fail(Class::Upstream)]);
    let mut served_by_c = 0;
    for _ in 0..300 {
        served_by_c += usize::from(bench.run_on(&bench.job_for("a", false)).await.0 == served("c"));
    }
    let calls = bench.script.calls();
    assert_eq!(calls.iter().filter(|name| *name == "b").count(), 300);
    assert_eq!(served_by_c, 100, "ten a second, of ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_there_is_not_found() {
    let bench = abc();
    let mut job = bench.job_for("nobody", false);
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("not_found"));
    job.prefer = Some(ModelId("a".into()));
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("not_found"));
}

#[tokio::test(start_paused = true)]
async fn a_named_model_that_was_never_asked_is_neither_retried_nor_its_own_candidate() {
    let bench = Arc::new(abc());
    bench.set_candidates(&["a", "b", "c"]);
    bench.edit(|specs| specs[0] = member("a").room(1));
    bench.script.set("a", [Play::After(Duration::from_millis(2_500)), Play::Serve]);
    bench.script.set("b", [fail_after(Duration::from_secs(1), Class::Upstream)]);
    let before = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.run_on(&bench.job_for("a", false)).await.0 })
    };
    tokio::task::yield_now().await;
    let (end, record) = bench.run_on(&bench.job_for("a", false)).await;
    assert_eq!(before.await.expect("it ends"), served("a"));
    assert_eq!((end, record.steps()), (served("c"), vec!["b fallback".to_owned(), "c fallback".to_owned()]));
}
