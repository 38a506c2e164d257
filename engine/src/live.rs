//! A committed stream on its way to the caller.

use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{AttemptEnded, AttemptStatus, Open};
use crate::events::Noted;
use crate::member::Member;
use crate::outcome::{Failure, Usage};
use crate::permit::Permit;
use crate::route::Engine;
use crate::stream::{Committed, EventSource};
use crate::task::Route;

/// A committed stream, with the permit that it holds until its end.
pub struct LiveStream<S: EventSource> {
    pub(crate) committed: Committed<S>,
    pub(crate) engine: Engine,
    pub(crate) task: Arc<str>,
    pub(crate) route: Route,
    pub(crate) member: Arc<Member>,
    pub(crate) permit: Permit,
    pub(crate) open: Open,
    pub(crate) first_content: Duration,
}

impl<S: EventSource> std::fmt::Debug for LiveStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveStream").field("member", &self.member.name).finish_non_exhaustive()
    }
}

/// How a committed stream ended.
#[derive(Debug)]
pub enum StreamEnd {
    /// The upstream finished it.
    Complete,
    /// It died after its first content.
    Died(Failure),
    /// The caller left.
    CallerLeft,
}

impl<S: EventSource> LiveStream<S> {
    /// The next event; see [`Committed::next`].
    pub async fn next(&mut self) -> Result<Option<S::Event>, Failure> {
        self.committed.next().await
    }

    /// What the adapter knows of the stream.
    pub const fn source(&self) -> &S {
        self.committed.source()
    }

    /// The member that serves it.
    pub const fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Closes the upstream's connection, gives the permit back, makes what was taken of the account's
    /// tokens what `usage` says, and reports the attempt.
    pub fn end(
        self,
        end: &StreamEnd,
        usage: Option<Usage>,
        provider_task_id: Option<String>,
    ) -> AttemptEnded {
        let Self { committed, engine, task, route, member, mut permit, open, first_content } = self;
        drop(committed);
        let now = engine.clock.now();
        if let Some(usage) = &usage {
            permit.used(usage, now);
        }
        let (ended, noted) = match end {
            StreamEnd::Complete => (open.ended(AttemptStatus::Succeeded, now), Noted::Success),
            StreamEnd::CallerLeft => (open.cancelled(now), Noted::Cancelled),
            StreamEnd::Died(failure) => {
                let moved = permit.fail_late(now, &*engine.random);
                engine.moved(&member, moved, &task, Some(open.seq), Some(failure.class));
                member.state.record(now, Some(failure));
                let failed = AttemptEnded { outcome_unknown: true, ..open.failed(failure, now) };
                (AttemptEnded { status: AttemptStatus::Failed, ..failed }, Noted::Failed(failure.class))
            }
        };
        let ended = AttemptEnded { first_content: Some(first_content), usage, provider_task_id, ..ended };
        engine.note(&route, &ended, noted);
        ended
    }
}
