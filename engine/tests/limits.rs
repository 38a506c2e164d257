//! Tokens a minute, requests a day, and that no limit is ever exceeded.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    AccountSpec, Beat, Bench, End, Play, Record, fail, fail_after, member, rate_limited, served,
};
use forebay_engine::live::StreamEnd;
use forebay_engine::select::{Shortage, Why, Wish};
use forebay_engine::task::{Job, Served, Stop, Unserved};
use forebay_engine::{Class, Clock, Failure, Moment, Needs, Usage};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

const fn input(input_tokens: u64) -> Usage {
    Usage { input_tokens, ..Usage::NONE }
}

/// One member whose only account may use 6,000 tokens a minute.
fn tpm() -> Bench {
    let bench = Bench::new([member("a").room(100).accounts(&["x"])]);
    bench.set_account("x", AccountSpec { max_tpm: Some(6_000), ..AccountSpec::default() });
    bench
}

fn expecting(bench: &Bench, tokens: u64) -> Job<()> {
    Job { expected: input(tokens), ..bench.job(false) }
}

/// When `tokens` would be there, from now on.
fn free_in(bench: &Bench, tokens: u64) -> Duration {
    let free_at = bench.account_of("a").state.tokens.free_at(6_000, tokens);
    bench.clock.now().until(free_at)
}

#[tokio::test(start_paused = true)]
async fn tokens_a_minute_hold_a_request_back_until_they_are_there() {
    let bench = tpm();
    let job = expecting(&bench, 3_000);
    assert_eq!(bench.run_on(&job).await.0, served("a"));
    assert_eq!(bench.run_on(&job).await.0, served("a"));
    assert_eq!(bench.run_on(&job).await.0, End::Stopped("congested"), "thirty seconds are no wait");
    bench.clock.advance(Duration::from_secs(27));
    let began = bench.clock.now();
    assert_eq!(bench.run_on(&job).await.0, served("a"), "one second is");
    let waited = bench.clock.now().since(began);
    assert!((Duration::from_millis(900)..Duration::from_millis(1_100)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_used_replaces_what_was_expected() {
    let bench = tpm();
    let used = Usage { output_tokens: 900, cached_input_tokens: 50, ..input(50) };
    bench.script.set("a", [Play::Use(used)]);
    assert_eq!(bench.run_on(&expecting(&bench, 5_000)).await.0, served("a"));
    assert_eq!(free_in(&bench, 5_000), Duration::ZERO);
    assert_eq!(free_in(&bench, 6_000), Duration::from_secs(10), "1,000 were used");

    let bench = tpm();
    bench.script.set("a", [Play::Use(input(18_000))]);
    assert_eq!(bench.run_on(&expecting(&bench, 100)).await.0, served("a"));
    assert_eq!(free_in(&bench, 0), 2 * MINUTE, "the overdraft is paid back first");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_was_billed_is_charged_what_it_was_billed() {
    let bench = tpm();
    let billed = Failure::new(Class::Unknown, "cut").with_billed(Some(input(1_000)));
    bench.script.set("a", [Play::Fail(billed)]);
    bench.run_on(&expecting(&bench, 5_000)).await;
    assert_eq!(free_in(&bench, 6_000), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_charged_at_its_end_and_keeps_the_estimate_where_nobody_says() {
    for (usage, seconds) in [(Some(input(1_000)), 10), (None, 30)] {
        let bench = tpm();
        bench.script.set("a", [Play::Stream(vec![Ok(Beat::Text("x"))])]);
        let job = Job { expected: input(3_000), ..bench.job(true) };
        let record = Record::default();
        let served = bench.engine.run(&*bench.script, &record, &job, std::future::pending()).await;
        let Ok(Served::Stream(live)) = served else { panic!("a stream") };
        assert_eq!(free_in(&bench, 6_000), Duration::from_secs(30), "expected until then");
        live.end(&StreamEnd::Complete, usage, None);
        assert_eq!(free_in(&bench, 6_000), Duration::from_secs(seconds), "{usage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_costs_neither_tokens_nor_a_request_of_the_day() {
    let leave = || tokio::time::sleep(Duration::from_millis(10));
    for (play, is_sent) in [(Play::HangBeforeSending, false), (Play::Hang, true)] {
        let bench = tpm();
        bench.script.set("a", [play]);
        assert_eq!(bench.run_job(&expecting(&bench, 3_000), leave()).await.0, End::Stopped("cancelled"));
        let left = (bench.account_of("a").state.requests_today(bench.clock.now()), free_in(&bench, 6_000));
        let expected = if is_sent { (1, Duration::from_millis(29_990)) } else { (0, Duration::ZERO) };
        assert_eq!(left, expected, "sent: {is_sent}");
    }
    let bench = tpm();
    bench.set_routing(|routing| routing.max_requests = 1);
    bench.script.set("a", [fail(Class::NotSent)]);
    assert_eq!(bench.run_on(&expecting(&bench, 3_000)).await.0, End::Stopped("upstream_failed"));
    assert_eq!(bench.account_of("a").state.requests_today(bench.clock.now()), 0);
    assert_eq!(free_in(&bench, 6_000), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_account_over_its_day_is_passed_over_and_never_waited_for() {
    let bench = Bench::new([member("a").accounts(&["x", "y"])]);
    let ends = bench.clock.now() + Duration::from_secs(5);
    for (label, daily_limit) in [("x", 2), ("y", 3)] {
        bench.set_account(label, AccountSpec { daily_limit: Some(daily_limit), ..AccountSpec::default() });
    }
    bench.member("a").accounts.iter().for_each(|binding| binding.account.state.start_day(0, ends));
    for _ in 0..5 {
        assert_eq!(bench.run().await.0, served("a"));
    }
    let used = |label: &str| {
        bench.script.accounts_used().iter().flatten().filter(|account| *account == label).count()
    };
    assert_eq!((used("x"), used("y")), (2, 3));
    let began = bench.clock.now();
    let record = Record::default();
    let end = bench.engine.run(&*bench.script, &record, &bench.job(false), std::future::pending()).await;
    let Err(Unserved { stop: Stop::NoAvailableModel { retry_after, why }, .. }) = end else {
        panic!("five seconds are no reason to wait for a day's end")
    };
    assert_eq!((retry_after, bench.clock.now()), (Some(Duration::from_secs(5)), began));
    assert_eq!(why.why[0].1, Why::Cooling(Class::Quota, ends));
    bench.clock.advance(Duration::from_secs(5));
    assert_eq!(bench.run().await.0, served("a"), "a new day begins by itself");
    let state = &bench.account_of("a").state;
    assert_eq!(state.day_ends(bench.clock.now()), ends + 24 * 60 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn what_the_record_says_of_the_day_counts_and_an_edit_of_the_limit_applies() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    let ends = bench.clock.now() + 60 * MINUTE;
    let state = bench.account_of("a").state.clone();
    state.start_day(9, ends);
    state.start_day(3, ends);
    let limit = |daily_limit| AccountSpec { daily_limit: Some(daily_limit), ..AccountSpec::default() };
    bench.set_account("x", limit(10));
    assert_eq!(bench.run().await.0, served("a"));
    assert_eq!(state.requests_today(bench.clock.now()), 10);
    assert_eq!(bench.run().await.0, End::Stopped("no_available_model"));
    bench.set_account("x", limit(11));
    assert_eq!(bench.run().await.0, served("a"));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_account_beside_one_over_its_day_is_what_callers_hear_of() {
    let bench = Bench::new([member("a").accounts(&["x", "y"])]);
    bench.set_account("x", AccountSpec { daily_limit: Some(0), ..AccountSpec::default() });
    bench.script.set("a", [rate_limited(40)]);
    assert_eq!(bench.run().await.0, End::Stopped("rate_limited"));
    let needs = Needs::default();
    let shortage = bench.pool().no_pick(&Wish::any(&needs), bench.clock.now()).shortage();
    assert_eq!(shortage, Shortage::RateLimited(bench.clock.now() + Duration::from_secs(40)));
}

/// One task of a schedule: when it comes, what becomes of it, and when its caller leaves.
#[derive(Clone, Debug)]
struct Step {
    at: u64,
    takes: u64,
    class: Option<Class>,
    leaves: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    model: u32,
    account: u32,
    rps: u32,
    tpm: u64,
    day: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Class::Upstream)),
        1 => Just(Some(Class::BadAnswer)),
        1 => Just(Some(Class::Unknown)),
    ];
    let step = (0_u64..20_000, 1_u64..3_000, class, prop::option::weighted(0.2, 1_u64..2_000))
        .prop_map(|(at, takes, class, leaves)| Step { at, takes, class, leaves });
    prop::collection::vec(step, 1..60)
}

fn bounds() -> impl Strategy<Value = Bounds> {
    (1_u32..5, 1_u32..5, 1_u32..30, 500_u64..20_000, 5_u64..60)
        .prop_map(|(model, account, rps, tpm, day)| Bounds { model, account, rps, tpm, day })
}

/// Tokens that each task of a schedule uses.
const EACH: u64 = 400;

async fn play(steps: Vec<Step>, bounds: Bounds) -> (Arc<Bench>, Vec<Duration>) {
    let room = |name| member(name).room(bounds.model).accounts(&["x"]);
    let bench = Arc::new(Bench::new([room("a"), room("b").priority(1)]));
    bench.set_policy(|policy| policy.breaker.failure_threshold = 1_000);
    bench.set_account(
        "x",
        AccountSpec {
            max_concurrency: Some(bounds.account),
            rps: Some(bounds.rps.into()),
            max_tpm: Some(bounds.tpm),
            daily_limit: Some(bounds.day),
            ..AccountSpec::default()
        },
    );
    for name in ["a", "b"] {
        let plays = steps.iter().map(|step| match step.class {
            None => Play::After(Duration::from_millis(step.takes)),
            Some(class) => fail_after(Duration::from_millis(step.takes), class),
        });
        bench.script.set(name, plays);
    }
    let start = tokio::time::Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for step in steps {
        let bench = bench.clone();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(step.at)).await;
            let leave = async {
                match step.leaves {
                    Some(after) => tokio::time::sleep(Duration::from_millis(after)).await,
                    None => std::future::pending().await,
                }
            };
            bench.run_job(&expecting(&bench, EACH), leave).await;
        });
    }
    tasks.join_all().await;
    let times = bench.script.timed(start).into_iter().map(|(at, _)| at).collect();
    (bench, times)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever comes when, fails, or leaves: no limit is exceeded, and nothing stays taken.
    #[test]
    fn no_limit_is_exceeded_under_any_schedule(steps in steps(), bounds in bounds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (bench, times) = runtime.expect("a runtime").block_on(play(steps, bounds));
        prop_assert!(bench.script.peak("a") <= bounds.model && bench.script.peak("b") <= bounds.model);
        prop_assert!(bench.script.peak("x") <= bounds.account);
        prop_assert!(times.len() as u64 <= bounds.day, "{} in a day", times.len());
        let burst = f64::from((bounds.rps / 10).max(1));
        for (first, from) in times.iter().enumerate() {
            for (last, to) in times.iter().enumerate().skip(first) {
                let (count, span) = ((last - first + 1) as f64, (*to - *from).as_secs_f64());
                prop_assert!(count <= burst + span * f64::from(bounds.rps) + 0.01, "{count} in {span} s");
                let tokens = (last - first + 1) as u64 * EACH;
                let allowed = bounds.tpm as f64 * (1.0 + span / 60.0) + 1.0;
                prop_assert!(tokens as f64 <= allowed, "{tokens} tokens in {span} s, {allowed} allowed");
            }
        }
        for name in ["a", "b"] {
            prop_assert_eq!(bench.member(name).state.in_flight.taken(), 0);
        }
        let account = bench.account_of("a");
        prop_assert_eq!(account.state.in_flight.taken(), 0);
        let now = Moment::from_millis(1_700_000_000_000);
        prop_assert_eq!(account.state.requests_today(now), times.len() as u64);
    }
}
