//! One task from its first pick to its end: attempts, retries, fallbacks, the budget and the deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{AttemptEnded, AttemptKind, Open};
use crate::breaker::Transition;
use crate::clock::{Clock, Moment};
use crate::events::{AttemptNoted, BreakerMoved, Noted, Observer};
use crate::member::Member;
use crate::outcome::{Class, Failure};
use crate::policy::{Capability, GroupKey, Routing};
use crate::pool::{Directory, Pool};
use crate::random::Random;
use crate::retry::Allowance;
use crate::select::{NoPick, Selection, Shortage, Wish};
use crate::task::{Job, Route, Served, Stop, Unserved};
use crate::upstream::{Journal, Upstream};

/// What a probe's lease adds to the attempt's own limit.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// What a caller is told to wait where every attempt was rate-limited and nobody said for how long.
const UNSAID_RATE_WAIT: Duration = Duration::from_secs(60);

/// The routing engine over its ports.
#[derive(Clone)]
pub struct Engine {
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) observer: Arc<dyn Observer>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// Over these ports.
    pub fn new(
        directory: Arc<dyn Directory>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { directory, clock, random, observer }
    }

    /// Serves one task. When `cancel` resolves first, what is under way is dropped, and the attempt
    /// that was out is reported as cancelled.
    pub async fn run<U: Upstream, J: Journal>(
        &self,
        upstream: &U,
        journal: &J,
        job: &Job<U::Request>,
        cancel: impl Future<Output = ()>,
    ) -> Result<Served<U>, Unserved<J::Refusal>> {
        let mut trail = Trail::default();
        let end = {
            let task = Task { engine: self, upstream, journal, job };
            tokio::select! {
                biased;
                end = task.serve(&mut trail) => Some(end),
                () = cancel => None,
            }
        };
        let stop = match end {
            Some(Ok(served)) => return Ok(served),
            Some(Err(stop)) => stop,
            None => Stop::Cancelled,
        };
        if let Some(open) = trail.open.take() {
            let ended = open.cancelled(self.clock.now());
            self.note(&job.route, &ended, Noted::Cancelled);
            trail.unrecorded = Some(ended);
        }
        Err(Unserved { stop, attempt: trail.unrecorded, begun: trail.begun })
    }

    /// The clock it runs on.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn pool(&self, route: &Route) -> Option<Arc<Pool>> {
        match route {
            Route::Pool(key) => self.directory.pool(key),
            Route::Model(model) => self.directory.model(model),
        }
    }

    pub(crate) fn moved(
        &self,
        member: &Member,
        transition: Option<Transition>,
        task: &Arc<str>,
        attempt: Option<u32>,
        class: Option<Class>,
    ) {
        if let Some(transition) = transition {
            self.observer.breaker_moved(&BreakerMoved {
                model: member.model.clone(),
                name: member.name.clone(),
                transition,
                task: Some(task.clone()),
                attempt,
                class,
            });
        }
    }

    pub(crate) fn note(&self, route: &Route, ended: &AttemptEnded, end: Noted) {
        self.observer.attempt_ended(&AttemptNoted {
            pool: &key_of(route),
            model: &ended.name,
            end,
            duration: ended.duration,
            first_content: ended.first_content,
        });
    }
}

/// What metrics and events call the pool.
fn key_of(route: &Route) -> GroupKey {
    match route {
        Route::Pool(key) => key.clone(),
        Route::Model(_) => GroupKey::none(),
    }
}

/// What a task has done so far; outlives a cancelled [`Task::serve`].
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(crate) begun: bool,
    /// The attempt that is out.
    pub(crate) open: Option<Open>,
    /// The last attempt that ended and that the journal has not heard of.
    pub(crate) unrecorded: Option<AttemptEnded>,
}

pub(crate) struct Task<'a, U: Upstream, J: Journal> {
    pub(crate) engine: &'a Engine,
    pub(crate) upstream: &'a U,
    pub(crate) journal: &'a J,
    pub(crate) job: &'a Job<U::Request>,
}

impl<U: Upstream, J: Journal> Task<'_, U, J> {
    async fn serve(&self, trail: &mut Trail) -> Result<Served<U>, Stop<J::Refusal>> {
        let began = self.now();
        let pool = self.engine.pool(&self.job.route).ok_or(Stop::NotFound)?;
        let routing = self.engine.directory.routing();
        let total = routing.retry(pool.capability).total;
        let deadline = began + self.job.deadline.map_or(total, |asked| asked.min(total));
        let mut allowance = Allowance::new(deadline, &self.job.route);
        let mut next = self.first(pool, &routing, &mut allowance).await?;
        loop {
            allowance.enter(&next);
            let member = next.selection.member.clone();
            let failure = match self.attempt(next, &allowance, trail).await? {
                Ok(served) => return Ok(served),
                Err(failure) => failure,
            };
            allowance.only_rate_limits &= failure.class == Class::RateLimited;
            if failure.class.blames_caller() && !allowance.needs_larger_context(&failure, &member) {
                return Err(Stop::CallerAtFault(failure));
            }
            // An edit since the last attempt applies; a pool that has gone ends the task.
            let Some(pool) = self.engine.pool(&self.job.route) else {
                return Err(end_of(failure, &allowance, None, self.now()));
            };
            if failure.class == Class::Unknown && !self.may_ask_again(&pool, deadline) {
                return Err(Stop::OutcomeUnknown);
            }
            let routing = self.engine.directory.routing();
            match self.after(&failure, &member, &pool, &routing, &mut allowance).await {
                Some(found) => next = found,
                None => {
                    let shortage = pool.no_pick(&self.wish(&routing, &pool), self.now()).shortage();
                    return Err(end_of(failure, &allowance, Some(shortage), self.now()));
                }
            }
            if next.kind == AttemptKind::Fallback {
                let to = &next.selection.member.name;
                self.engine.observer.switched(&key_of(&self.job.route), &member.name, to, failure.class);
            }
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    pub(crate) fn wish(&self, routing: &Routing, pool: &Pool) -> Wish<'_> {
        let retry = routing.retry(pool.capability);
        let limit = if self.job.stream { pool.policy.first_packet_timeout } else { retry.attempt };
        Wish {
            expected: self.job.expected,
            region: self.job.region.as_deref(),
            lease: limit + LEASE_MARGIN,
            ..Wish::any(&self.job.needs)
        }
    }

    /// Picks the job's preferred model if that is usable, else as the pool does.
    pub(crate) fn pick(&self, pool: &Pool, wish: &Wish<'_>) -> Result<Selection, NoPick> {
        let (random, now) = (&*self.engine.random, self.now());
        let preferred = self.job.prefer.as_ref().map(|model| Wish { only: Some(model), ..*wish });
        match preferred.and_then(|preferred| pool.pick(&preferred, random, now).ok()) {
            Some(selection) => Ok(selection),
            None => pool.pick(wish, random, now),
        }
    }

    /// A streamed text before its first content is safe to ask for again elsewhere; so is what the
    /// pool's operator said is. Whoever asked for a model by name gets another one only by its leave.
    fn may_ask_again(&self, pool: &Pool, deadline: Moment) -> bool {
        let may = match self.job.route {
            Route::Pool(_) => self.job.stream || pool.policy.retry_unknown,
            Route::Model(_) => self.job.stream && pool.policy.fallback_on_failure,
        };
        may && pool.capability == Capability::Text && self.now() < deadline
    }
}

fn end_of<R>(failure: Failure, allowance: &Allowance, shortage: Option<Shortage>, now: Moment) -> Stop<R> {
    if failure.class == Class::Unknown {
        return Stop::OutcomeUnknown;
    }
    if failure.class.blames_caller() {
        return Stop::CallerAtFault(failure);
    }
    if allowance.only_rate_limits {
        let after = shortage.and_then(|shortage| shortage.retry_after(now)).or(failure.retry_after);
        return Stop::RateLimited(after.unwrap_or(UNSAID_RATE_WAIT));
    }
    Stop::UpstreamFailed(failure)
}
