//! A task as the engine sees it: what is asked, and how it can end.

use std::sync::Arc;
use std::time::Duration;

use crate::attempt::AttemptEnded;
use crate::features::Needs;
use crate::live::LiveStream;
use crate::member::ModelId;
use crate::outcome::{Failure, Usage};
use crate::policy::GroupKey;
use crate::select::NoPick;
use crate::upstream::Upstream;

/// Where a task is routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the members of a pool.
    Pool(GroupKey),
    /// To one model, for old callers.
    Model(ModelId),
}

/// One task, as the engine needs to know it.
#[derive(Debug)]
pub struct Job<R> {
    /// Its id, for events.
    pub task: Arc<str>,
    /// Where it is routed.
    pub route: Route,
    /// A streamed answer.
    pub stream: bool,
    /// What it asks of a model.
    pub needs: Needs,
    /// What it is expected to use: what costs are compared by, and what an account's tokens a minute
    /// are charged until the upstream reports.
    pub expected: Usage,
    /// This model first, wherever it is usable: for `thinking`, the pool's deep_thinking_model.
    pub prefer: Option<ModelId>,
    /// Members, then accounts, of this region first within equal priority; it excludes nobody.
    pub region: Option<Arc<str>>,
    /// From its start; the capability's own limit applies too.
    pub deadline: Option<Duration>,
    /// What is asked.
    pub request: R,
}

/// A task that was served.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and boxing it would allocate"
)]
pub enum Served<U: Upstream> {
    /// By a whole answer.
    Whole {
        /// The answer.
        answer: U::Answer,
        /// The attempt that gave it, ended but not yet recorded.
        attempt: AttemptEnded,
    },
    /// By a stream that has shown its first content.
    Stream(Box<LiveStream<U::Stream>>),
}

/// A task that was not served.
#[derive(Debug)]
pub struct Unserved<R> {
    /// Why.
    pub stop: Stop<R>,
    /// Its last attempt, ended but not yet recorded.
    pub attempt: Option<AttemptEnded>,
    /// Some attempt reached the journal.
    pub begun: bool,
}

/// Why a task was not served.
#[derive(Debug)]
pub enum Stop<R> {
    /// The pool or model is not there any more.
    NotFound,
    /// No member has a feature that the request needs.
    Lacks(&'static str),
    /// No room within the queue's bounds.
    Congested(Duration),
    /// Everything that could serve is rate-limited.
    RateLimited(Duration),
    /// Nobody can serve, and nothing was sent.
    NoAvailableModel {
        /// The earliest recovery.
        retry_after: Option<Duration>,
        /// A reason per member.
        why: NoPick,
    },
    /// Every allowed attempt failed.
    UpstreamFailed(Failure),
    /// The caller's request is at fault ([`Class::Request`] or [`Class::Policy`]).
    CallerAtFault(Failure),
    /// The upstream may have done it; nothing was sent again.
    OutcomeUnknown,
    /// The deadline came while waiting.
    DeadlineExceeded,
    /// The caller left.
    Cancelled,
    /// The journal refused the attempt.
    Refused(R),
}
