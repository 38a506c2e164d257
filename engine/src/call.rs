//! One attempt: recorded first, then sent, then judged.

use std::time::Duration;

use crate::attempt::{AttemptEnded, AttemptSent, AttemptStatus, Open};
use crate::breaker::Verdict;
use crate::clock::Moment;
use crate::events::Noted;
use crate::live::LiveStream;
use crate::outcome::{Class, Failure};
use crate::pool::Pool;
use crate::retry::{Allowance, Next};
use crate::route::{Task, Trail};
use crate::select::Selection;
use crate::stream::{Committed, probe};
use crate::task::{Served, Stop};
use crate::upstream::{Journal, Order, Sent, Upstream, Whole};

impl<U: Upstream, J: Journal> Task<'_, U, J> {
    /// Makes one attempt: recorded first, then sent, then judged.
    pub(crate) async fn attempt(
        &self,
        next: Next,
        allowance: &Allowance,
        trail: &mut Trail,
    ) -> Result<Result<Served<U>, Failure>, Stop<J::Refusal>> {
        let engine = self.engine;
        let Next { pool, mut selection, kind, reason, waited } = next;
        let (seq, deadline) = (allowance.requests, allowance.deadline);
        let member = selection.member.clone();
        engine.moved(&member, selection.transition, &self.job.task, Some(seq), None);
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
        let was_sent = Sent::default();
        selection.permit.watch(was_sent.clone());
        trail.open = Some(Open {
            seq,
            model: member.model.clone(),
            name: member.name.clone(),
            at,
            sent: was_sent.clone(),
        });
        if let Err(refusal) = self.journal.sent(trail.unrecorded.clone(), sent).await {
            trail.open = None;
            return Err(Stop::Refused(refusal));
        }
        trail.unrecorded = None;
        trail.begun = true;
        let called = self.call(&selection, &pool, &was_sent, deadline).await;
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
                if let Some(usage) = &whole.usage {
                    selection.permit.used(usage, now);
                }
                self.succeeded(&mut selection, seq, now.since(at));
                engine.note(&self.job.route, &ended, Noted::Success);
                Ok(Ok(Served::Whole { answer: whole.answer, attempt: ended }))
            }
            Ok(Answered::Stream(committed)) => {
                self.succeeded(&mut selection, seq, now.since(at));
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
            Err(missed) => {
                let (failure, blame) = match missed {
                    Missed::Failed(failure) => (failure, Blame::AsItsClassSays),
                    Missed::OutOfTime(failure) => (failure, Blame::Nobody),
                };
                let ended = open.failed(&failure, now);
                self.failed(selection, &failure, blame, seq, now);
                let noted = if failure.class == Class::Unknown {
                    Noted::Unknown
                } else {
                    Noted::Failed(failure.class)
                };
                engine.note(&self.job.route, &ended, noted);
                trail.unrecorded = Some(ended);
                if !was_sent.get() && now >= deadline {
                    return Err(Stop::DeadlineExceeded);
                }
                Ok(Err(failure))
            }
        }
    }

    async fn call(
        &self,
        selection: &Selection,
        pool: &Pool,
        sent: &Sent,
        deadline: Moment,
    ) -> Result<Answered<U>, Missed> {
        let clock = &self.engine.clock;
        let retry = self.engine.directory.routing().retry(pool.capability).clone();
        let span = if self.job.stream {
            pool.policy.first_packet_timeout.min(retry.stream_attempt)
        } else {
            retry.attempt
        };
        let order = Order {
            request: &self.job.request,
            member: &selection.member,
            account: selection.binding().map(|binding| &*binding.account),
            sent,
        };
        let call = async {
            if self.job.stream {
                let source = self.upstream.stream(order).await?;
                Ok(Answered::Stream(probe(source, &pool.policy, clock.clone()).await?))
            } else {
                self.upstream.whole(order).await.map(Answered::Whole)
            }
        };
        let limit = self.now() + span;
        tokio::select! {
            biased;
            answered = call => answered.map_err(Missed::Failed),
            () = clock.sleep_until(limit.min(deadline)) => {
                let class = if sent.get() { Class::Unknown } else { Class::NotSent };
                let what = if self.job.stream { "no content" } else { "no answer" };
                Err(if limit <= deadline {
                    Missed::Failed(Failure::new(class, format!("{what} within the attempt's time")))
                } else {
                    Missed::OutOfTime(Failure::new(class, format!("{what} before the task's deadline")))
                })
            }
        }
    }

    /// `took` until the answer, or until a stream's first content.
    fn succeeded(&self, selection: &mut Selection, seq: u32, took: Duration) {
        let now = self.now();
        let moved = selection.permit.settle(Verdict::Success, now, &*self.engine.random);
        self.engine.moved(&selection.member, moved, &self.job.task, Some(seq), None);
        selection.member.state.record(now, None);
        selection.member.state.latency.record(took, now);
        if let Some(binding) = selection.binding() {
            binding.account.state.accepted();
        }
    }

    fn failed(&self, mut selection: Selection, failure: &Failure, blame: Blame, seq: u32, now: Moment) {
        let engine = self.engine;
        if blame == Blame::Nobody {
            selection.permit.settle(Verdict::Uncounted, now, &*engine.random);
            return;
        }
        let moved = selection.permit.settle(failure.class.verdict(), now, &*engine.random);
        engine.moved(&selection.member, moved, &self.job.task, Some(seq), Some(failure.class));
        if let Some(usage) = failure.billed.as_deref() {
            selection.permit.used(usage, now);
        }
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

/// Why a call brought no answer.
enum Missed {
    /// It failed.
    Failed(Failure),
    /// The task's deadline came before the attempt's own limit: a model that was not given its whole time
    /// is not blamed for it, or any caller could open a breaker by asking for the impossible.
    OutOfTime(Failure),
}

/// Who is to blame for a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blame {
    AsItsClassSays,
    Nobody,
}

enum Answered<U: Upstream> {
    Whole(Whole<U::Answer>),
    Stream(Committed<U::Stream>),
}
