//! What each class of failure does: the table of section 4 of the engine's design.

use std::time::Duration;

use crate::support::{Bench, End, Play, fail, member, served};
use forebay_engine::{Class, Clock, Member, Moment};

/// Where a cooldown lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Nowhere,
    /// On the account, at every model.
    Account,
    /// On the account at this model alone.
    Binding,
    /// On the model.
    Model,
}

struct Row {
    class: Class,
    is_counted: bool,
    cools: Where,
    seconds: u64,
    steps: &'static [&'static str],
    end: fn() -> End,
}

const OTHER_ACCOUNT: &[&str] = &["a x initial", "a y retry"];
const OTHER_MEMBER: &[&str] = &["a x initial", "b z fallback"];
const ALONE: &[&str] = &["a x initial"];

fn row(class: Class) -> Row {
    let (is_counted, cools, seconds, steps, end): (_, _, _, _, fn() -> End) = match class {
        Class::NotSent => (true, Where::Account, 10, OTHER_MEMBER, || served("b")),
        Class::RateLimited => (false, Where::Binding, 60, OTHER_ACCOUNT, || served("a")),
        Class::Auth => (false, Where::Account, 10, OTHER_ACCOUNT, || served("a")),
        Class::Quota => (false, Where::Account, 3_600, OTHER_ACCOUNT, || served("a")),
        Class::Misconfigured => (false, Where::Binding, 300, OTHER_ACCOUNT, || served("a")),
        Class::Upstream | Class::BadAnswer => (true, Where::Nowhere, 0, OTHER_MEMBER, || served("b")),
        Class::Unknown => (true, Where::Nowhere, 0, ALONE, || End::Stopped("outcome_unknown")),
        Class::Request | Class::Policy => {
            (false, Where::Nowhere, 0, ALONE, || End::Stopped("invalid_request"))
        }
    };
    Row { class, is_counted, cools, seconds, steps, end }
}

/// What cools of the member's first account, and for how many seconds.
fn cooling(member: &Member, now: Moment) -> Vec<(Where, u64)> {
    let binding = member.accounts.first();
    let places = [
        (Where::Account, binding.map(|binding| binding.account.state.cooldown.until())),
        (Where::Binding, binding.map(|binding| binding.cooldown.until())),
        (Where::Model, Some(member.state.cooldown.until())),
    ];
    let seconds = |(place, until): (Where, Option<Moment>)| Some((place, now.until(until?).as_secs()));
    places.into_iter().filter_map(seconds).filter(|(_, seconds)| *seconds > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn each_class_cools_counts_and_goes_on_as_the_table_says() {
    for Row { class, is_counted, cools, seconds, steps, end } in Class::ALL.map(row) {
        let bench = Bench::new([member("a").accounts(&["x", "y"]), member("b").priority(1).accounts(&["z"])]);
        bench.script.set("a", [fail(class), Play::Serve]);
        let (ended, record) = bench.run().await;
        assert_eq!(
            (record.steps(), ended),
            (steps.iter().map(|s| (*s).to_owned()).collect(), end()),
            "{class}"
        );
        let (a, now) = (bench.member("a"), bench.clock.now());
        let expected = if cools == Where::Nowhere { vec![] } else { vec![(cools, seconds)] };
        assert_eq!(cooling(&a, now), expected, "{class}");
        assert_eq!(a.state.breaker.view(now).recent.failures, u64::from(is_counted), "{class}");
        let blames_caller = matches!(class, Class::Request | Class::Policy);
        assert_eq!(a.state.recent(now).failures, u64::from(!blames_caller), "{class}: on its row");
        assert_eq!(a.state.last_failure().is_none(), blames_caller, "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_account_what_would_cool_one_cools_the_model() {
    for Row { class, cools, seconds, .. } in Class::ALL.map(row) {
        let bench = Bench::new([member("a"), member("b").priority(1)]);
        bench.script.set("a", [fail(class)]);
        bench.run().await;
        // A connection that fails has nobody else to be made with.
        let cools = cools != Where::Nowhere && class != Class::NotSent;
        let expected = if cools { vec![(Where::Model, seconds)] } else { vec![] };
        assert_eq!(cooling(&bench.member("a"), bench.clock.now()), expected, "{class}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fails_cools_no_account_where_there_is_no_other() {
    let bench = Bench::new([member("a").accounts(&["x"]), member("b").priority(1)]);
    bench.script.set("a", [fail(Class::NotSent)]);
    assert_eq!(bench.run().await.0, served("b"));
    assert_eq!(cooling(&bench.member("a"), bench.clock.now()), []);
}

#[tokio::test(start_paused = true)]
async fn b11_a_name_that_does_not_resolve_is_passed_over_at_once_and_said_to_be_not_sent() {
    let bench = Bench::new([member("a"), member("b").priority(1)]);
    bench.script.set("a", [fail(Class::NotSent)]);
    let began = bench.clock.now();
    let (end, record) = bench.run().await;
    assert_eq!((end, bench.clock.now()), (served("b"), began));
    let failed = &record.ended()[0];
    assert_eq!(failed.failure.as_ref().map(|failure| failure.class), Some(Class::NotSent));
    assert!(!failed.outcome_unknown);
}

#[tokio::test(start_paused = true)]
async fn an_operator_forgives_an_account_and_its_doubling() {
    let bench = Bench::new([member("a").accounts(&["x"])]);
    bench.script.set("a", [fail(Class::Auth)]);
    for _ in 0..3 {
        bench.run().await;
        bench.clock.advance(Duration::from_secs(60));
    }
    bench.run().await;
    let state = bench.account_of("a").state.clone();
    assert_eq!(bench.clock.now().until(state.cooldown.until()), Duration::from_secs(80));
    state.forgive();
    bench.run().await;
    assert_eq!(bench.clock.now().until(state.cooldown.until()), Duration::from_secs(10));
}
