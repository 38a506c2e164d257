//! What a request needs, and who has it.

use crate::support::{Bench, End, fail, member, served, too_long, two};
use forebay_engine::{Class, Clock};

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

/// Refuses what is too long for it, and so does everyone with a context as small.
fn too_long_for(bench: &Bench, names: &[&'static str]) {
    names.iter().for_each(|name| bench.script.set(name, [too_long()]));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_goes_only_to_a_larger_declared_context() {
    let bench = Bench::new([
        member("small").context(8_000),
        member("as_small").priority(1).context(8_000),
        member("undeclared").priority(2),
        member("large").priority(3).context(32_000),
        member("larger").priority(4).context(128_000),
    ]);
    too_long_for(&bench, &["small", "large"]);
    let (end, record) = bench.run().await;
    assert_eq!(record.steps(), ["small initial", "large fallback", "larger fallback"]);
    assert_eq!(end, served("larger"));
    for name in ["small", "large"] {
        assert_eq!(bench.failures(name), 0);
        assert_eq!(bench.member(name).state.recent(bench.clock.now()).calls, 0, "{name} is not to blame");
    }
    assert!(record.reasons()[1].contains("fallback after request"), "{:?}", record.reasons());
}

#[tokio::test(start_paused = true)]
async fn where_nobody_has_a_larger_context_the_caller_is_told() {
    let undeclared = Bench::new([member("a"), member("b").priority(1).context(32_000)]);
    let largest = Bench::new([member("a").context(32_000), member("b").priority(1).context(8_000)]);
    let open = Bench::new([member("a").context(8_000), member("b").priority(1).context(32_000)]);
    open.open("b");
    for bench in [undeclared, largest, open] {
        too_long_for(&bench, &["a"]);
        let (end, record) = bench.run().await;
        assert_eq!((end, record.steps()), (End::Stopped("invalid_request"), vec!["a initial".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_found_it_too_long_is_not_retried_when_the_larger_one_fails() {
    let bench = Bench::new([member("a").context(8_000), member("b").priority(1).context(32_000)]);
    too_long_for(&bench, &["a"]);
    bench.script.set("b", [fail(Class::Upstream)]);
    let (end, record) = bench.run().await;
    assert_eq!(record.steps(), ["a initial", "b fallback"]);
    assert_eq!(end, End::Stopped("upstream_failed"));
}

#[tokio::test(start_paused = true)]
async fn a_named_model_that_is_too_small_is_stood_in_for_by_a_larger_candidate_only() {
    let members = || [member("a").context(8_000), member("b").context(8_000), member("c").context(9_000)];
    let bench = Bench::new(members());
    bench.set_policy(|policy| policy.fallback_on_failure = true);
    bench.set_candidates(&["b", "c"]);
    too_long_for(&bench, &["a", "b"]);
    let (end, record) = bench.run_on(&bench.job_for("a", false)).await;
    assert_eq!((end, record.steps()), (served("c"), vec!["a initial".to_owned(), "c fallback".to_owned()]));

    let bench = Bench::new(members());
    too_long_for(&bench, &["a"]);
    assert_eq!(bench.run_on(&bench.job_for("a", false)).await.0, End::Stopped("invalid_request"));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_routed_by_what_is_known_of_its_length() {
    let bench = Bench::new([member("small").context(8_000), member("large").priority(1).context(32_000)]);
    let mut job = bench.job(false);
    for (context_tokens, expected) in [
        (0, served("small")),
        (8_000, served("small")),
        (8_001, served("large")),
        (40_000, End::Stopped("unsupported")),
    ] {
        job.needs.context_tokens = context_tokens;
        assert_eq!(bench.run_on(&job).await.0, expected, "{context_tokens}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_prefers_a_closed_member_whatever_the_pool_prefers() {
    let bench = Bench::new([
        member("a").context(8_000),
        member("b").priority(1).context(32_000),
        member("c").priority(2).context(32_000),
    ]);
    bench.set_policy(|policy| policy.switch_first = false);
    let now = bench.clock.now();
    bench.member("b").state.breaker.force_open(now, now);
    too_long_for(&bench, &["a"]);
    assert_eq!(bench.run().await.0, served("c"));
}
