//! The breaker as a state machine, against its rules and against a model.

use std::time::Duration;

use forebay_engine::breaker::{Breaker, BreakerState, Cause, Verdict};
use forebay_engine::clock::Moment;
use forebay_engine::policy::{BreakerPolicy, ErrorRatePolicy};
use forebay_engine::random::SeededRandom;
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(125);

struct Rig {
    breaker: Breaker,
    random: SeededRandom,
    now: Moment,
}

impl Rig {
    fn new(policy: BreakerPolicy) -> Self {
        Self {
            breaker: Breaker::new(policy),
            random: SeededRandom::new(1),
            now: Moment::from_millis(1_700_000_000_000),
        }
    }

    fn state(&self) -> BreakerState {
        self.breaker.view(self.now).state
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn admit(&self) -> Option<forebay_engine::breaker::Ticket> {
        self.breaker.admit(self.now, LEASE).0
    }

    /// One call from leave to verdict; `None` when it was not admitted.
    fn call(&self, verdict: Verdict) -> Option<Option<Cause>> {
        let ticket = self.admit()?;
        Some(self.breaker.settle(&ticket, verdict, self.now, &self.random).map(|moved| moved.cause))
    }

    fn fail(&self, times: u32) {
        (0..times).for_each(|_| assert!(self.call(Verdict::Failure).is_some()));
    }
}

#[test]
fn five_failures_in_a_row_open_it_and_after_a_minute_one_probe_decides() {
    let mut rig = Rig::new(BreakerPolicy::default());
    rig.fail(4);
    assert_eq!(rig.call(Verdict::Success), Some(None));
    rig.fail(4);
    assert_eq!(rig.state(), BreakerState::Closed);
    assert_eq!(rig.call(Verdict::Failure), Some(Some(Cause::FailuresInARow)));
    assert!(!rig.breaker.admits(rig.now) && rig.admit().is_none());
    rig.wait(59);
    assert!(rig.admit().is_none());
    rig.wait(1);
    assert_eq!(rig.state(), BreakerState::Open, "looking changes nothing");
    assert!(rig.breaker.admits(rig.now));
    let probe = rig.admit().expect("a probe");
    assert!(probe.is_probe() && rig.admit().is_none(), "one probe, and no more");
    let moved = rig.breaker.settle(&probe, Verdict::Failure, rig.now, &rig.random).expect("it moves");
    assert_eq!((moved.cause, rig.state()), (Cause::ProbeFailed, BreakerState::Open));
    rig.wait(60);
    assert_eq!(rig.call(Verdict::Success), Some(Some(Cause::ProbesSucceeded)));
    assert_eq!(rig.state(), BreakerState::Closed);
}

#[test]
fn b7_results_of_an_older_generation_change_nothing() {
    let mut rig = Rig::new(BreakerPolicy::default());
    let late: Vec<_> = (0..10).map(|_| rig.admit().expect("closed admits")).collect();
    rig.fail(5);
    rig.wait(60);
    let probe = rig.admit().expect("a probe");
    for (n, ticket) in late.iter().enumerate() {
        let verdict = if n % 2 == 0 { Verdict::Failure } else { Verdict::Success };
        assert_eq!(rig.breaker.settle(ticket, verdict, rig.now, &rig.random), None);
    }
    assert_eq!(rig.state(), BreakerState::HalfOpen);
    assert!(rig.admit().is_none(), "the probe's slot is still taken");
    assert!(rig.breaker.settle(&probe, Verdict::Success, rig.now, &rig.random).is_some());
}

#[test]
fn a_probe_that_never_ends_is_reclaimed_and_its_late_result_is_old() {
    let mut rig = Rig::new(BreakerPolicy::default());
    rig.fail(5);
    rig.wait(60);
    let lost = rig.admit().expect("a probe");
    rig.wait(124);
    assert!(rig.admit().is_none());
    rig.wait(1);
    let next = rig.admit().expect("the lease is over");
    assert!(next.generation() > lost.generation());
    assert_eq!(rig.breaker.settle(&lost, Verdict::Failure, rig.now, &rig.random), None);
    assert!(rig.breaker.settle(&next, Verdict::Success, rig.now, &rig.random).is_some());
    assert_eq!(rig.state(), BreakerState::Closed);
}

#[test]
fn an_edit_applies_at_once_and_keeps_the_state() {
    let mut rig = Rig::new(BreakerPolicy::default());
    rig.fail(3);
    rig.breaker.configure(BreakerPolicy { failure_threshold: 4, ..BreakerPolicy::default() });
    assert_eq!(rig.breaker.view(rig.now).consecutive_failures, 3);
    assert_eq!(rig.call(Verdict::Failure), Some(Some(Cause::FailuresInARow)));
    rig.wait(10);
    rig.breaker.configure(BreakerPolicy { recovery: Duration::from_secs(10), ..BreakerPolicy::default() });
    assert!(rig.breaker.admits(rig.now), "the open time is measured anew");
}

#[test]
fn an_operator_forces_it_open_and_resets_it() {
    let mut rig = Rig::new(BreakerPolicy::default());
    rig.breaker.force_open(Moment::NEVER, rig.now);
    rig.wait(1_000_000);
    assert!(rig.admit().is_none());
    rig.breaker.configure(BreakerPolicy { recovery: Duration::from_secs(1), ..BreakerPolicy::default() });
    assert!(rig.admit().is_none(), "an edit does not undo what an operator forced");
    assert_eq!(rig.breaker.reset(rig.now).to, BreakerState::Closed);
    assert!(rig.admit().is_some());
}

#[test]
fn with_back_off_each_failed_probe_doubles_the_open_time_up_to_ten_times() {
    let mut rig = Rig::new(BreakerPolicy { backoff: true, ..BreakerPolicy::default() });
    rig.fail(5);
    let mut spans = Vec::new();
    for _ in 0..6 {
        let until = rig.breaker.view(rig.now).open_until.expect("it is open");
        spans.push(rig.now.until(until).as_secs_f64());
        rig.now = until;
        assert!(rig.call(Verdict::Failure).is_some());
    }
    for (span, expected) in spans.iter().zip([60.0, 120.0, 240.0, 480.0, 600.0, 600.0]) {
        assert!((expected * 0.9..=expected * 1.1).contains(span), "{spans:?}");
    }
}

#[test]
fn error_rate_needs_enough_calls_and_closes_at_nine_of_ten_probes() {
    let policy = BreakerPolicy {
        failure_threshold: 1_000,
        error_rate: Some(ErrorRatePolicy::default()),
        ..BreakerPolicy::default()
    };
    let mut rig = Rig::new(policy);
    for n in 0..19 {
        assert_eq!(rig.call(if n % 3 == 0 { Verdict::Success } else { Verdict::Failure }), Some(None));
    }
    assert_eq!(rig.call(Verdict::Failure), Some(Some(Cause::ErrorRate)));
    rig.wait(299);
    assert!(rig.admit().is_none());
    rig.wait(1);
    let probes: Vec<_> = (0..10).map(|_| rig.admit().expect("ten probes")).collect();
    assert!(rig.admit().is_none());
    // An uncounted result enters no ratio and gives its slot back.
    assert_eq!(rig.breaker.settle(&probes[0], Verdict::Uncounted, rig.now, &rig.random), None);
    assert!(rig.admit().is_some());
    assert_eq!(rig.breaker.settle(&probes[1], Verdict::Failure, rig.now, &rig.random), None);
    let moved = rig
        .breaker
        .settle(&probes[2], Verdict::Failure, rig.now, &rig.random)
        .expect("nine can't be reached");
    assert_eq!(moved.cause, Cause::ProbeFailed);
    rig.wait(300);
    for n in 0..9 {
        let expected = (n == 8).then_some(Cause::ProbesSucceeded);
        assert_eq!(rig.call(Verdict::Success), Some(expected));
    }
}

/// What the breaker must be equal to, written as plainly as possible.
#[derive(Clone, Copy, Debug)]
enum Model {
    Closed { failures: u32 },
    Open { until: Moment },
    HalfOpen { out: Option<(u64, Moment)> },
}

#[derive(Clone, Debug)]
enum Step {
    Admit,
    Settle(prop::sample::Index, Verdict),
    Wait(u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![Just(Verdict::Success), Just(Verdict::Failure), Just(Verdict::Uncounted)];
    let step = prop_oneof![
        5 => Just(Step::Admit),
        5 => (any::<prop::sample::Index>(), verdict).prop_map(|(which, verdict)| Step::Settle(which, verdict)),
        2 => (1_u64..70).prop_map(Step::Wait),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn the_breaker_is_its_model(steps in steps()) {
        const THRESHOLD: u32 = 3;
        let mut rig = Rig::new(BreakerPolicy { failure_threshold: THRESHOLD, ..BreakerPolicy::default() });
        let mut model = Model::Closed { failures: 0 };
        let mut era = 0_u64;
        let mut out: Vec<(forebay_engine::breaker::Ticket, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(seconds) => rig.wait(seconds),
                Step::Reset => {
                    rig.breaker.reset(rig.now);
                    era += 1;
                    model = Model::Closed { failures: 0 };
                }
                Step::Admit => {
                    let expected = match &mut model {
                        Model::Closed { .. } => true,
                        Model::Open { until } if *until <= rig.now => {
                            era += 1;
                            model = Model::HalfOpen { out: Some((era, rig.now + LEASE)) };
                            true
                        }
                        Model::Open { .. } => false,
                        Model::HalfOpen { out } => match out {
                            Some((_, lease)) if *lease > rig.now => false,
                            Some(_) => {
                                era += 1;
                                *out = Some((era, rig.now + LEASE));
                                true
                            }
                            None => {
                                *out = Some((era, rig.now + LEASE));
                                true
                            }
                        },
                    };
                    prop_assert_eq!(rig.breaker.admits(rig.now), expected);
                    let ticket = rig.admit();
                    prop_assert_eq!(ticket.is_some(), expected);
                    out.extend(ticket.map(|ticket| (ticket, era)));
                }
                Step::Settle(which, verdict) => {
                    if out.is_empty() {
                        continue;
                    }
                    let (ticket, of) = out.swap_remove(which.index(out.len()));
                    rig.breaker.settle(&ticket, verdict, rig.now, &rig.random);
                    if of == era {
                        let open = Model::Open { until: rig.now + Duration::from_secs(60) };
                        let next = match (&model, verdict) {
                            (_, Verdict::Uncounted) => match model {
                                Model::HalfOpen { .. } => Model::HalfOpen { out: None },
                                other => other,
                            },
                            (Model::Closed { .. }, Verdict::Success) => Model::Closed { failures: 0 },
                            (Model::Closed { failures }, Verdict::Failure) if failures + 1 < THRESHOLD => {
                                Model::Closed { failures: failures + 1 }
                            }
                            (Model::HalfOpen { .. }, Verdict::Success) => Model::Closed { failures: 0 },
                            _ => open,
                        };
                        let kind = std::mem::discriminant(&model);
                        if kind != std::mem::discriminant(&next) || matches!(next, Model::Open { .. }) {
                            era += 1;
                        }
                        model = next;
                    }
                }
            }
            let state = match &model {
                Model::Closed { .. } => BreakerState::Closed,
                Model::Open { .. } => BreakerState::Open,
                Model::HalfOpen { .. } => BreakerState::HalfOpen,
            };
            prop_assert_eq!(rig.state(), state);
            if let Model::Closed { failures } = model {
                prop_assert_eq!(rig.breaker.view(rig.now).consecutive_failures, failures);
            }
        }
        // Whatever happened, it recovers: nothing stays half-open for ever.
        rig.wait(10_000);
        prop_assert!(rig.breaker.admits(rig.now));
    }
}
