//! The engine's [`Observer`] port: metrics, the log, and the table of breaker events.

use std::sync::Arc;

use forebay_engine::clock::Moment;
use forebay_engine::events::{AttemptNoted, BreakerMoved};
use forebay_engine::{BreakerState, Class, GroupKey, Member, Observer};

use serde_json::json;

use super::{Events, Metrics};
use crate::store::events::{BreakerEvent, BreakerEvents};

fn rfc3339(at: Moment) -> Option<String> {
    jiff::Timestamp::from_millisecond(at.as_millis() as i64).ok().map(|at| at.to_string())
}

/// Tells everyone who listens.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Arc<Metrics>,
    breaker_events: BreakerEvents,
    events: Events,
}

impl Telemetry {
    /// Counts in `metrics`, writes transitions to `breaker_events`, and tells `events`.
    pub const fn new(metrics: Arc<Metrics>, breaker_events: BreakerEvents, events: Events) -> Self {
        Self { metrics, breaker_events, events }
    }
}

impl Observer for Telemetry {
    fn breaker_moved(&self, moved: &BreakerMoved) {
        let transition = &moved.transition;
        self.metrics.breaker_moved(&moved.name, transition.to);
        let (model, cause) = (&*moved.name, transition.cause.as_str());
        if transition.to == BreakerState::Open {
            tracing::warn!(model, cause, from = %transition.from, "breaker opened");
        } else {
            tracing::info!(model, cause, from = %transition.from, to = %transition.to, "breaker moved");
        }
        self.events.tell("breaker", || {
            json!({"model": model, "from": transition.from.as_str(), "to": transition.to.as_str(), "cause": cause,
                   "class": moved.class.map(forebay_engine::Class::as_str), "task_id": moved.task, "attempt": moved.attempt})
        });
        self.breaker_events.record(BreakerEvent {
            at: transition.at.as_millis() as i64,
            model_id: moved.model.to_string(),
            model: moved.name.to_string(),
            from: transition.from.to_string(),
            to: transition.to.to_string(),
            cause: cause.to_owned(),
            detail: moved.class.map(|class| class.to_string()),
            generation: transition.generation,
            by_operator: None,
            attempt: moved.task.as_ref().zip(moved.attempt).map(|(task, seq)| (task.to_string(), seq)),
        });
    }

    fn attempt_ended(&self, ended: &AttemptNoted<'_>) {
        self.metrics.attempt_ended(ended.pool, ended.model, ended.end, ended.duration, ended.first_content);
    }

    fn switched(&self, pool: &GroupKey, from: &str, to: &str, class: Class) {
        self.metrics.switched(pool, from, to, class);
    }

    fn cooled(&self, member: &Member, account: Option<&str>, class: Class, until: Moment) {
        let seconds = until.as_millis() / 1_000;
        tracing::warn!(model = %member.name, account, %class, until = seconds, "set aside");
        self.events.tell("cooldown", || {
            json!({"model": &*member.name, "account": account, "class": class.as_str(), "until": rfc3339(until)})
        });
    }
}
