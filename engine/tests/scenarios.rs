//! Section 5 of the engine's design, scenario by scenario: who is asked, with which account, and as
//! what, in a pool and where a model is asked for by name.

use crate::support::{Bench, End, Play, Spec, fail, member, quick_breaker, served};
use forebay_engine::Class::{Auth, BadAnswer, Misconfigured, NotSent, Policy, Quota, RateLimited, Request};
use forebay_engine::Class::{Unknown, Upstream};
use forebay_engine::task::Job;
use forebay_engine::{Capability, Class};

/// A situation, and what must come of it.
struct Scenario {
    name: &'static str,
    members: Vec<Spec>,
    scripts: Vec<(&'static str, Vec<Play>)>,
    arrange: fn(&Bench),
    steps: &'static [&'static str],
    end: End,
}

impl Scenario {
    fn arranged(self, arrange: fn(&Bench)) -> Self {
        Self { arrange, ..self }
    }

    async fn check(self, job: fn(&Bench) -> Job<()>) {
        let bench = Bench::new(self.members);
        for (name, plays) in self.scripts {
            bench.script.set(name, plays);
        }
        (self.arrange)(&bench);
        let (end, record) = bench.run_on(&job(&bench)).await;
        assert_eq!(record.steps(), self.steps, "{}", self.name);
        assert_eq!(end, self.end, "{}", self.name);
    }
}

/// Members in tiers of their own, so that the first pick and each fallback have but one choice.
fn tiers(members: impl IntoIterator<Item = Spec>) -> Vec<Spec> {
    members.into_iter().zip(0..).map(|(member, tier)| member.priority(tier)).collect()
}

/// Each of `failing` fails for ever with `class`; the others serve.
fn scenario(
    name: &'static str,
    members: impl IntoIterator<Item = Spec>,
    failing: &[(&'static str, Class)],
    steps: &'static [&'static str],
    end: End,
) -> Scenario {
    let scripts = failing.iter().map(|(name, class)| (*name, vec![fail(*class)])).collect();
    Scenario { name, members: tiers(members), scripts, arrange: |_| {}, steps, end }
}

const fn stopped(why: &'static str) -> End {
    End::Stopped(why)
}

fn half_open(bench: &Bench, name: &str) {
    let now = forebay_engine::Clock::now(&*bench.clock);
    bench.member(name).state.breaker.force_open(now, now);
}

fn same_first(bench: &Bench) {
    bench.set_policy(|policy| policy.switch_first = false);
}

fn in_pool() -> Vec<Scenario> {
    let abc = || ["a", "b", "c"].map(member);
    let ab = || ["a", "b"].map(member);
    let a = || [member("a")];
    let two_accounts = || [member("a").accounts(&["x", "y", "z"]), member("b")];
    vec![
        scenario("a definite failure", ab(), &[("a", Upstream)], &["a initial", "b fallback"], served("b")),
        scenario(
            "an answer without one",
            ab(),
            &[("a", BadAnswer)],
            &["a initial", "b fallback"],
            served("b"),
        ),
        scenario(
            "the third serves",
            abc(),
            &[("a", Upstream), ("b", BadAnswer)],
            &["a initial", "b fallback", "c fallback"],
            served("c"),
        ),
        scenario(
            "1: another account, and a third is not tried",
            two_accounts(),
            &[("a", Auth)],
            &["a x initial", "a y retry", "b fallback"],
            served("b"),
        ),
        scenario(
            "1: without another account the next member",
            [member("a").accounts(&["x"]), member("b")],
            &[("a", Quota)],
            &["a x initial", "b fallback"],
            served("b"),
        ),
        scenario(
            "1: a fallback's other account too",
            [member("a"), member("b").accounts(&["x", "y"]), member("c")],
            &[("a", Upstream), ("b", Misconfigured)],
            &["a initial", "b x fallback", "b y retry", "c fallback"],
            served("c"),
        ),
        scenario(
            "1: an account that both are bound to is another one at each",
            [member("a").accounts(&["x"]), member("b").accounts(&["x"])],
            &[("a", Misconfigured)],
            &["a x initial", "b x fallback"],
            served("b"),
        ),
        scenario(
            "2: the class says at once",
            ab(),
            &[("a", NotSent)],
            &["a initial", "b fallback"],
            served("b"),
        )
        .arranged(same_first),
        scenario(
            "2: the class of an account says at once",
            ab(),
            &[("a", RateLimited)],
            &["a initial", "b fallback"],
            served("b"),
        )
        .arranged(same_first),
        scenario(
            "2: a closed member comes before one that is half open",
            abc(),
            &[("a", Upstream)],
            &["a initial", "c fallback"],
            served("c"),
        )
        .arranged(|bench| half_open(bench, "b")),
        scenario(
            "3: without switch_first the same model first",
            ab(),
            &[("a", Upstream)],
            &["a initial", "a retry", "a retry", "b fallback"],
            served("b"),
        )
        .arranged(same_first),
        scenario(
            "3: nobody else",
            a(),
            &[("a", Upstream)],
            &["a initial", "a retry", "a retry"],
            stopped("upstream_failed"),
        ),
        scenario(
            "3: no connection, and nobody else",
            a(),
            &[("a", NotSent)],
            &["a initial", "a retry", "a retry"],
            stopped("upstream_failed"),
        ),
        scenario(
            "3: the first model is retried, not the last",
            ab(),
            &[("a", Upstream), ("b", Upstream)],
            &["a initial", "b fallback", "a retry", "a retry"],
            stopped("upstream_failed"),
        ),
        scenario(
            "3: a half-open member keeps its request",
            ab(),
            &[("a", Upstream)],
            &["a initial", "a retry", "a retry", "b fallback"],
            served("b"),
        )
        .arranged(|bench| half_open(bench, "b")),
        scenario(
            "3: no connection: a half-open member before the same model",
            ab(),
            &[("a", NotSent)],
            &["a initial", "b fallback"],
            served("b"),
        )
        .arranged(|bench| half_open(bench, "b")),
        scenario(
            "4: a breaker that opens leaves nothing to retry",
            ab(),
            &[("a", Upstream)],
            &["a initial", "b fallback"],
            served("b"),
        )
        .arranged(|bench| {
            bench.set_policy(|policy| {
                policy.switch_first = false;
                policy.breaker = quick_breaker();
            });
            half_open(bench, "b");
        }),
        scenario(
            "caps: three models, five requests",
            ["a", "b", "c", "d"].map(member),
            &[("a", Upstream), ("b", Upstream), ("c", Upstream)],
            &["a initial", "b fallback", "c fallback", "a retry", "a retry"],
            stopped("upstream_failed"),
        ),
        scenario(
            "caps: whatever the settings say",
            ["a", "b", "c", "d"].map(member),
            &[("a", Upstream), ("b", Upstream), ("c", Upstream)],
            &["a initial", "b fallback", "c fallback", "a retry", "a retry"],
            stopped("upstream_failed"),
        )
        .arranged(|bench| {
            bench.set_routing(|routing| {
                (routing.max_models, routing.max_requests) = (9, 50);
                let mut text = routing.retry(Capability::Text).clone();
                text.retries = 20;
                routing.set_retry(Capability::Text, text);
            });
        }),
        scenario(
            "caps: an account's turn counts as a request",
            [
                member("a").accounts(&["x", "y"]),
                member("b").accounts(&["u", "v"]),
                member("c").accounts(&["p", "q"]),
            ],
            &[("a", Auth), ("b", Auth), ("c", Auth)],
            &["a x initial", "a y retry", "b u fallback", "b v retry", "c p fallback"],
            stopped("upstream_failed"),
        ),
        scenario(
            "the request is at fault",
            ab(),
            &[("a", Request)],
            &["a initial"],
            stopped("invalid_request"),
        ),
        scenario(
            "the content is not allowed",
            ab(),
            &[("a", Policy)],
            &["a initial"],
            stopped("invalid_request"),
        ),
        scenario("nobody can tell", ab(), &[("a", Unknown)], &["a initial"], stopped("outcome_unknown")),
        scenario(
            "every attempt was rate-limited",
            ab(),
            &[("a", RateLimited), ("b", RateLimited)],
            &["a initial", "b fallback"],
            stopped("rate_limited"),
        ),
        scenario(
            "not every attempt was rate-limited",
            ab(),
            &[("a", RateLimited), ("b", Quota)],
            &["a initial", "b fallback"],
            stopped("upstream_failed"),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_pools_task_goes_through_section_5_in_order() {
    for scenario in in_pool() {
        scenario.check(|bench| bench.job(false)).await;
    }
}

fn may_fall_back(bench: &Bench) {
    bench.set_policy(|policy| policy.fallback_on_failure = true);
    bench.set_candidates(&["a", "b", "c", "d"]);
}

fn by_name() -> Vec<Scenario> {
    let abc = || ["a", "b", "c"].map(member);
    let retries = &["a initial", "a retry", "a retry"];
    vec![
        scenario("it serves", abc(), &[], &["a initial"], served("a")),
        scenario("3: no other member exists", abc(), &[("a", Upstream)], retries, stopped("upstream_failed")),
        scenario(
            "3: not for no connection either",
            abc(),
            &[("a", NotSent)],
            retries,
            stopped("upstream_failed"),
        ),
        scenario(
            "1: its other account",
            [member("a").accounts(&["x", "y"]), member("b")],
            &[("a", Auth)],
            &["a x initial", "a y retry"],
            stopped("upstream_failed"),
        ),
        scenario(
            "candidates after its retries, each once",
            abc(),
            &[("a", Upstream), ("b", Upstream)],
            &["a initial", "a retry", "a retry", "b fallback", "c fallback"],
            served("c"),
        )
        .arranged(may_fall_back),
        scenario(
            "candidates at once where it can't be retried",
            [member("a").accounts(&["x", "y"]), member("b")],
            &[("a", Quota)],
            &["a x initial", "a y retry", "b fallback"],
            served("b"),
        )
        .arranged(may_fall_back),
        scenario(
            "a candidate's other account",
            [member("a"), member("b").accounts(&["x", "y"]), member("c")],
            &[("a", Misconfigured), ("b", Auth)],
            &["a initial", "b x fallback", "b y retry", "c fallback"],
            served("c"),
        )
        .arranged(may_fall_back),
        scenario(
            "caps: three models",
            ["a", "b", "c", "d"].map(member),
            &[("a", Misconfigured), ("b", Upstream), ("c", Upstream)],
            &["a initial", "b fallback", "c fallback"],
            stopped("upstream_failed"),
        )
        .arranged(may_fall_back),
        scenario(
            "caps: a retry leaves a request for a candidate",
            abc(),
            &[("a", Upstream)],
            &["a initial", "a retry", "a retry", "a retry", "b fallback"],
            served("b"),
        )
        .arranged(|bench| {
            may_fall_back(bench);
            bench.set_routing(|routing| {
                let mut text = routing.retry(Capability::Text).clone();
                text.retries = 20;
                routing.set_retry(Capability::Text, text);
            });
        }),
        scenario(
            "candidates in their order, passing over who can't serve",
            abc(),
            &[("a", Misconfigured)],
            &["a initial", "c fallback"],
            served("c"),
        )
        .arranged(|bench| {
            may_fall_back(bench);
            bench.open("b");
        }),
        scenario("an open breaker is a failure", abc(), &[], &["b fallback"], served("b")).arranged(
            |bench| {
                may_fall_back(bench);
                bench.open("a");
            },
        ),
        scenario("an open breaker, and no leave", abc(), &[], &[], stopped("no_available_model"))
            .arranged(|bench| bench.open("a")),
        scenario(
            "what was never asked is not retried",
            abc(),
            &[("b", Upstream)],
            &["b fallback", "c fallback"],
            served("c"),
        )
        .arranged(|bench| {
            may_fall_back(bench);
            bench.open("a");
        }),
        scenario("nobody can tell", abc(), &[("a", Unknown)], &["a initial"], stopped("outcome_unknown"))
            .arranged(|bench| bench.set_policy(|policy| policy.fallback_on_failure = true)),
        scenario(
            "the request is at fault",
            abc(),
            &[("a", Request)],
            &["a initial"],
            stopped("invalid_request"),
        )
        .arranged(|bench| bench.set_policy(|policy| policy.fallback_on_failure = true)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_named_models_task_goes_through_section_5_in_order() {
    for scenario in by_name() {
        scenario.check(|bench| bench.job_for("a", false)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_ignores_the_switch_of_model_mode() {
    let bench = Bench::new(tiers(["a", "b"].map(member)));
    bench.set_policy(|policy| policy.fallback_on_failure = true);
    ["a", "b"].iter().for_each(|name| bench.script.set(name, [fail(Misconfigured)]));
    // The bench's directory panics when it is asked for candidates.
    assert_eq!(bench.run().await.0, stopped("upstream_failed"));
}
