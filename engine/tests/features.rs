//! What a request needs, and who has it.

use crate::support::{End, fail, member, served, two};
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
