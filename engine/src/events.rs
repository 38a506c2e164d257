//! What the engine tells the world as it happens; metrics, breaker events and pages listen.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Transition;
use crate::clock::Moment;
use crate::member::{Member, ModelId};
use crate::outcome::Class;
use crate::policy::GroupKey;

/// The port for observers. Every call returns at once.
pub trait Observer: Send + Sync + 'static {
    /// A breaker changed its state.
    fn breaker_moved(&self, moved: &BreakerMoved) {
        let _ = moved;
    }

    /// An attempt ended.
    fn attempt_ended(&self, ended: &AttemptNoted<'_>) {
        let _ = ended;
    }

    /// A task went on to another model.
    fn switched(&self, pool: &GroupKey, from: &str, to: &str, class: Class) {
        let _ = (pool, from, to, class);
    }

    /// An account or a model was set aside.
    fn cooled(&self, member: &Member, account: Option<&str>, class: Class, until: Moment) {
        let _ = (member, account, class, until);
    }
}

/// A breaker's change of state.
#[derive(Clone, Debug)]
pub struct BreakerMoved {
    /// The model's id.
    pub model: ModelId,
    /// The model's name.
    pub name: Arc<str>,
    /// The change.
    pub transition: Transition,
    /// The task whose attempt caused it.
    pub task: Option<Arc<str>>,
    /// Which of its attempts.
    pub attempt: Option<u32>,
    /// The class of the failure that caused it.
    pub class: Option<Class>,
}

/// How an attempt ended, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct AttemptNoted<'a> {
    /// The pool.
    pub pool: &'a GroupKey,
    /// The model's name.
    pub model: &'a str,
    /// How it ended.
    pub end: Noted,
    /// The whole call; of a stream, until its end.
    pub duration: Duration,
    /// Until the first content, of a stream.
    pub first_content: Option<Duration>,
}

/// The ways an attempt ends, as metrics name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It served.
    Success,
    /// It did not.
    Failed(Class),
    /// We can't tell.
    Unknown,
    /// The caller left.
    Cancelled,
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Observer for Deaf {}
