//! One task from its first pick to its end: attempts, retries, fallbacks, the budget and the deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{AttemptEnded, AttemptKind, AttemptSent, AttemptStatus, Open};
use crate::breaker::{Transition, Verdict};
use crate::clock::{Clock, Moment};
use crate::events::{AttemptNoted, BreakerMoved, Noted, Observer};
use crate::live::LiveStream;
use crate::member::Member;
use crate::outcome::{Class, Failure};
use crate::policy::{Capability, GroupKey, Routing};
use crate::pool::{Directory, Pool, PoolState};
use crate::random::Random;
use crate::retry::{Allowance, Next};
use crate::select::{NoPick, Selection, Shortage, Wish};
use crate::stream::{Committed, probe};
use crate::task::{Job, Route, Served, Stop, Unserved};
use crate::upstream::{Journal, Order, Sent, Upstream, Whole};

/// A wait for a rate limit that is longer than this is not worth a place in the queue.
pub(crate) const LONGEST_RATE_WAIT: Duration = Duration::from_secs(10);
/// What a probe's lease adds to the attempt's own limit.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// The routing engine over its ports.
#[derive(Clone)]
pub struct Engine {
    directory: Arc<dyn Directory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    observer: Arc<dyn Observer>,
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
    ) {
        if let Some(transition) = transition {
            self.observer.breaker_moved(&BreakerMoved {
                model: member.model.clone(),
                name: member.name.clone(),
                transition,
                task: Some(task.clone()),
                attempt,
            });
        }
    }

    pub(crate) fn note(&self, route: &Route, ended: &AttemptEnded, end: Noted) {
        let solo;
        let pool = match route {
            Route::Pool(key) => key,
            Route::Model(_) => {
                solo = GroupKey::none();
                &solo
            }
        };
        self.observer.attempt_ended(&AttemptNoted {
            pool,
            model: &ended.name,
            end,
            duration: ended.duration,
            first_content: ended.first_content,
        });
    }
}

/// What a task has done so far; outlives a cancelled [`Task::serve`].
#[derive(Debug, Default)]
struct Trail {
    begun: bool,
    /// The attempt that is out.
    open: Option<Open>,
    /// The last attempt that ended and that the journal has not heard of.
    unrecorded: Option<AttemptEnded>,
}

pub(crate) struct Task<'a, U: Upstream, J: Journal> {
    pub(crate) engine: &'a Engine,
    upstream: &'a U,
    journal: &'a J,
    pub(crate) job: &'a Job<U::Request>,
}

impl<U: Upstream, J: Journal> Task<'_, U, J> {
    async fn serve(&self, trail: &mut Trail) -> Result<Served<U>, Stop<J::Refusal>> {
        let began = self.now();
        let pool = self.engine.pool(&self.job.route).ok_or(Stop::NotFound)?;
        let routing = self.engine.directory.routing();
        let total = routing.retry(pool.capability).total;
        let deadline = began + self.job.deadline.map_or(total, |asked| asked.min(total));
        let mut next = self.first(pool, &routing, deadline).await?;
        let mut allowance = Allowance {
            deadline,
            first: next.selection.member.model.clone(),
            tried: Vec::new(),
            tried_accounts: Vec::new(),
            requests: 0,
            retries: 0,
            fallbacks: 0,
            only_rate_limits: true,
        };
        loop {
            allowance.enter(&next);
            let member = next.selection.member.clone();
            let failure = match self.attempt(next, allowance.requests, deadline, trail).await? {
                Ok(served) => return Ok(served),
                Err(failure) => failure,
            };
            allowance.only_rate_limits &= failure.class == Class::RateLimited;
            if failure.class.blames_caller() {
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
            if next.kind == AttemptKind::Fallback
                && let Route::Pool(key) = &self.job.route
            {
                self.engine.observer.switched(key, &member.name, &next.selection.member.name, failure.class);
            }
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    pub(crate) fn wish<'w>(&self, routing: &Routing, pool: &Pool) -> Wish<'w> {
        let retry = routing.retry(pool.capability);
        let limit = if self.job.stream { pool.policy.first_packet_timeout } else { retry.attempt };
        Wish { lease: limit + LEASE_MARGIN, ..Wish::any(self.job.needs) }
    }

    /// A streamed text before its first content is safe to ask for again elsewhere; so is what the
    /// pool's operator said is.
    fn may_ask_again(&self, pool: &Pool, deadline: Moment) -> bool {
        let text = pool.capability == Capability::Text;
        text && (self.job.stream || pool.policy.retry_unknown) && self.now() < deadline
    }

    /// The first pick, waiting for room where that is worth it.
    async fn first(
        &self,
        pool: Arc<Pool>,
        routing: &Routing,
        deadline: Moment,
    ) -> Result<Next, Stop<J::Refusal>> {
        let began = self.now();
        let wish = self.wish(routing, &pool);
        let random = &*self.engine.random;
        pool.state.count_first(began);
        let picked = if pool.state.waiting() == 0 {
            pool.pick(&wish, random, began)
        } else {
            Err(pool.no_pick(&wish, began))
        };
        let selection = match picked {
            Ok(selection) => selection,
            Err(no_pick) => self.queue(&pool, &wish, no_pick, deadline).await?,
        };
        let reason = format!(
            "{}: weight {} in tier {}",
            pool.policy.strategy.as_str(),
            selection.member.weight.get(),
            selection.member.priority.get()
        );
        Ok(Next { selection, kind: AttemptKind::Initial, reason, waited: self.now().since(began) })
    }

    /// Waits in arrival order until something can be picked, or until that is not to be expected.
    async fn queue(
        &self,
        pool: &Arc<Pool>,
        wish: &Wish<'_>,
        mut no_pick: NoPick,
        deadline: Moment,
    ) -> Result<Selection, Stop<J::Refusal>> {
        let engine = self.engine;
        let began = self.now();
        let congested = |no_pick: &NoPick, now| {
            let after = no_pick.shortage().retry_after(now).unwrap_or(Duration::from_secs(1));
            Stop::Congested(after)
        };
        // Those that nothing can serve soon are told at once, before they take a place.
        if pool.state.waiting() == 0 {
            self.worth_waiting(&no_pick, began, deadline)?;
        }
        let Some(_place) = PoolState::join(&pool.state, pool.queue_max()) else {
            return Err(congested(&no_pick, began));
        };
        let mut limit = (began + pool.policy.queue_timeout).min(deadline);
        let out_of_time = |no_pick: &NoPick| {
            if self.now() >= deadline { Stop::DeadlineExceeded } else { congested(no_pick, self.now()) }
        };
        let _head = tokio::select! {
            biased;
            head = pool.state.head.lock() => head,
            () = engine.clock.sleep_until(limit) => return Err(out_of_time(&no_pick)),
        };
        loop {
            let opened = pool.room.opened();
            tokio::pin!(opened);
            opened.as_mut().enable();
            let now = self.now();
            // An edit while waiting applies.
            let pool = engine.pool(&self.job.route).ok_or(Stop::NotFound)?;
            no_pick = match pool.pick(wish, &*engine.random, now) {
                Ok(selection) => return Ok(selection),
                Err(no_pick) => no_pick,
            };
            let look_again = self.worth_waiting(&no_pick, now, deadline)?;
            if let Shortage::RateLimited(at) = no_pick.shortage() {
                limit = limit.max(at + Duration::from_millis(1)).min(deadline);
            }
            if now >= limit {
                return Err(out_of_time(&no_pick));
            }
            let until = look_again.map_or(limit, |at| at.min(limit));
            tokio::select! {
                () = opened => {}
                () = engine.clock.sleep_until(until) => {}
            }
        }
    }

    /// Whether to wait, and when to look again if nobody calls.
    fn worth_waiting(
        &self,
        no_pick: &NoPick,
        now: Moment,
        deadline: Moment,
    ) -> Result<Option<Moment>, Stop<J::Refusal>> {
        let shortage = no_pick.shortage();
        match shortage {
            Shortage::Full(token) => Ok(token.map(|at| at.max(now + Duration::from_millis(1)))),
            Shortage::RateLimited(at) if now.until(at) <= LONGEST_RATE_WAIT && at < deadline => Ok(Some(at)),
            Shortage::RateLimited(_) => {
                Err(Stop::RateLimited(shortage.retry_after(now).unwrap_or(LONGEST_RATE_WAIT)))
            }
            Shortage::Lacks(feature) => Err(Stop::Lacks(feature)),
            Shortage::Unavailable(_) => {
                Err(Stop::NoAvailableModel { retry_after: shortage.retry_after(now), why: no_pick.clone() })
            }
        }
    }

    /// Makes one attempt: recorded first, then sent, then judged.
    async fn attempt(
        &self,
        next: Next,
        seq: u32,
        deadline: Moment,
        trail: &mut Trail,
    ) -> Result<Result<Served<U>, Failure>, Stop<J::Refusal>> {
        let engine = self.engine;
        let Next { selection, kind, reason, waited } = next;
        let member = selection.member.clone();
        engine.moved(&member, selection.transition, &self.job.task, Some(seq));
        let at = self.now();
        let sent = AttemptSent {
            seq,
            kind,
            reason,
            member: member.clone(),
            account: selection.binding().map(|b| (b.account.id.clone(), b.account.label.clone())),
            at,
            waited,
            generation: selection.permit.generation(),
        };
        trail.open = Some(Open {
            seq,
            model: member.model.clone(),
            name: member.name.clone(),
            at,
            sent: Sent::default(),
        });
        if let Err(refusal) = self.journal.sent(trail.unrecorded.clone(), sent).await {
            trail.open = None;
            return Err(Stop::Refused(refusal));
        }
        trail.unrecorded = None;
        trail.begun = true;
        let Some(open) = &trail.open else {
            return Err(Stop::NotFound);
        };
        let (sent, limit) = (open.sent.clone(), self.limit(deadline));
        let called = self.call(&selection, &sent, limit).await;
        let now = self.now();
        let Some(open) = trail.open.take() else {
            return Err(Stop::NotFound);
        };
        match called {
            Ok(Answered::Whole(whole)) => {
                let ended = AttemptEnded {
                    usage: whole.usage,
                    provider_task_id: whole.provider_task_id,
                    ..open.ended(AttemptStatus::Succeeded, now)
                };
                let mut selection = selection;
                self.succeeded(&mut selection, seq, now);
                engine.note(&self.job.route, &ended, Noted::Success);
                Ok(Ok(Served::Whole { answer: whole.answer, attempt: ended }))
            }
            Ok(Answered::Stream(committed)) => {
                let mut selection = selection;
                self.succeeded(&mut selection, seq, now);
                Ok(Ok(Served::Stream(Box::new(LiveStream {
                    committed,
                    engine: engine.clone(),
                    task: self.job.task.clone(),
                    route: self.job.route.clone(),
                    first_content: now.since(at),
                    member,
                    permit: selection.permit,
                    open,
                }))))
            }
            Err(failure) => {
                let ended = open.failed(&failure, now);
                self.failed(selection, &failure, seq, now);
                let noted = if failure.class == Class::Unknown {
                    Noted::Unknown
                } else {
                    Noted::Failed(failure.class)
                };
                engine.note(&self.job.route, &ended, noted);
                trail.unrecorded = Some(ended);
                if !sent.get() && now >= deadline {
                    return Err(Stop::DeadlineExceeded);
                }
                Ok(Err(failure))
            }
        }
    }

    fn limit(&self, deadline: Moment) -> Moment {
        let routing = self.engine.directory.routing();
        let pool = self.engine.pool(&self.job.route);
        let capability = pool.as_ref().map_or(Capability::Text, |pool| pool.capability);
        let retry = routing.retry(capability);
        let span = if self.job.stream {
            let first_packet = pool.map_or(retry.stream_attempt, |pool| pool.policy.first_packet_timeout);
            first_packet.min(retry.stream_attempt)
        } else {
            retry.attempt
        };
        (self.now() + span).min(deadline)
    }

    async fn call(&self, selection: &Selection, sent: &Sent, limit: Moment) -> Result<Answered<U>, Failure> {
        let order = Order {
            request: &self.job.request,
            member: &selection.member,
            account: selection.binding().map(|binding| &*binding.account),
            sent,
        };
        let call = async {
            if self.job.stream {
                let source = self.upstream.stream(order).await?;
                let policy =
                    self.engine.pool(&self.job.route).map(|pool| pool.policy.clone()).unwrap_or_default();
                let committed = probe(source, &policy, self.engine.clock.clone()).await?;
                Ok(Answered::Stream(committed))
            } else {
                self.upstream.whole(order).await.map(Answered::Whole)
            }
        };
        tokio::select! {
            biased;
            answered = call => answered,
            () = self.engine.clock.sleep_until(limit) => {
                let class = if sent.get() { Class::Unknown } else { Class::NotSent };
                let what = if self.job.stream { "no content" } else { "no answer" };
                Err(Failure::new(class, format!("{what} within the time limit")))
            }
        }
    }

    fn succeeded(&self, selection: &mut Selection, seq: u32, now: Moment) {
        let moved = selection.permit.settle(Verdict::Success, now, &*self.engine.random);
        self.engine.moved(&selection.member, moved, &self.job.task, Some(seq));
        selection.member.state.record(now, None);
        if let Some(binding) = selection.binding() {
            binding.account.state.accepted();
        }
    }

    fn failed(&self, mut selection: Selection, failure: &Failure, seq: u32, now: Moment) {
        let engine = self.engine;
        let moved = selection.permit.settle(failure.class.verdict(), now, &*engine.random);
        engine.moved(&selection.member, moved, &self.job.task, Some(seq));
        if !failure.class.blames_caller() {
            selection.member.state.record(now, Some(failure));
            if let Some(binding) = selection.binding() {
                binding.account.state.failed(now, failure);
            }
        }
        let policy = &engine.directory.routing().cooldown;
        let cooled = selection.member.cool(failure, selection.binding(), selection.key_revision, policy, now);
        if let Some(until) = cooled {
            let account = selection.binding().map(|binding| &*binding.account.label);
            engine.observer.cooled(&selection.member, account, failure.class, until);
        }
    }
}

enum Answered<U: Upstream> {
    Whole(Whole<U::Answer>),
    Stream(Committed<U::Stream>),
}

fn end_of<R>(failure: Failure, allowance: &Allowance, shortage: Option<Shortage>, now: Moment) -> Stop<R> {
    if failure.class == Class::Unknown {
        return Stop::OutcomeUnknown;
    }
    if allowance.only_rate_limits {
        let after = shortage.and_then(|shortage| shortage.retry_after(now)).or(failure.retry_after);
        return Stop::RateLimited(after.unwrap_or(Duration::from_secs(60)));
    }
    Stop::UpstreamFailed(failure)
}
