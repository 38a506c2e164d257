//! One real upstream request: as it is about to be sent, while it is out, and as it ended.

use std::sync::Arc;
use std::time::Duration;

use crate::account::AccountId;
use crate::clock::Moment;
use crate::member::{Member, ModelId};
use crate::outcome::{Class, Failure, Usage};
use crate::upstream::Sent;

/// Why an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// The task's first.
    Initial,
    /// Again on the same model.
    Retry,
    /// On another model.
    Fallback,
}

impl AttemptKind {
    /// The name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Retry => "retry",
            Self::Fallback => "fallback",
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStatus {
    /// It served.
    Succeeded,
    /// It certainly did not.
    Failed,
    /// We can't tell.
    OutcomeUnknown,
    /// The caller left.
    Cancelled,
}

impl AttemptStatus {
    /// The name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An attempt about to be sent.
#[derive(Clone, Debug)]
pub struct AttemptSent {
    /// 1, 2, 3 … within the task.
    pub seq: u32,
    /// Why it is made.
    pub kind: AttemptKind,
    /// Why this member was chosen, in words.
    pub reason: String,
    /// The member.
    pub member: Arc<Member>,
    /// The account's id and label.
    pub account: Option<(AccountId, Arc<str>)>,
    /// When.
    pub at: Moment,
    /// How long it waited for room, or backed off, before.
    pub waited: Duration,
    /// The breaker's generation that admitted it.
    pub generation: u64,
}

/// An attempt that ended.
#[derive(Clone, Debug)]
pub struct AttemptEnded {
    /// Which.
    pub seq: u32,
    /// The model.
    pub model: ModelId,
    /// The model's name.
    pub name: Arc<str>,
    /// What became of it.
    pub status: AttemptStatus,
    /// It may have been done, and billed.
    pub outcome_unknown: bool,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Until the first content, of a stream.
    pub first_content: Option<Duration>,
    /// From its start to its end.
    pub duration: Duration,
    /// The provider's own id for it.
    pub provider_task_id: Option<String>,
    /// What it consumed.
    pub usage: Option<Usage>,
}

/// An attempt that is out.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) seq: u32,
    pub(crate) model: ModelId,
    pub(crate) name: Arc<str>,
    pub(crate) at: Moment,
    pub(crate) sent: Sent,
}

impl Open {
    pub(crate) fn ended(&self, status: AttemptStatus, now: Moment) -> AttemptEnded {
        AttemptEnded {
            seq: self.seq,
            model: self.model.clone(),
            name: self.name.clone(),
            status,
            outcome_unknown: status == AttemptStatus::OutcomeUnknown,
            failure: None,
            first_content: None,
            duration: now.since(self.at),
            provider_task_id: None,
            usage: None,
        }
    }

    pub(crate) fn cancelled(&self, now: Moment) -> AttemptEnded {
        AttemptEnded { outcome_unknown: self.sent.get(), ..self.ended(AttemptStatus::Cancelled, now) }
    }

    pub(crate) fn failed(&self, failure: &Failure, now: Moment) -> AttemptEnded {
        let status = match failure.class {
            Class::Unknown => AttemptStatus::OutcomeUnknown,
            _ => AttemptStatus::Failed,
        };
        AttemptEnded {
            failure: Some(failure.clone()),
            usage: failure.billed.as_deref().copied(),
            ..self.ended(status, now)
        }
    }
}
