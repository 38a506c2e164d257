//! One task from a checked request to its recorded end.
//!
//! The task runs in a tokio task of its own, so that its end is recorded whatever becomes of the
//! connection: the caller's leaving cancels it, except where an Idempotency-Key lets the caller come
//! back for the answer.

use std::sync::Arc;

use forebay_engine::attempt::{AttemptEnded, AttemptStatus};
use forebay_engine::live::LiveStream;
use forebay_engine::task::{Job, Served, Stop, Unserved};
use forebay_engine::{Class, Engine, Failure, GroupKey, Needs, Usage};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::answer::{Answer, FALLBACK_TEMPLATE, Finished};
use super::error::{ApiError, CANCELLED, DUPLICATE_KEY, Dialect};
use super::journal::TaskJournal;
use super::keys::KeyGuard;
use super::request::Asked;
use super::stream::{self, StreamStart};
use super::{CallerSlot, Gateway, Work, WorkGuard};
use crate::catalog::Caller;
use crate::exchange::{AnswerStream, Ask, ModelUpstream, Operation};
use crate::ledger::{Micros, Refused, TaskBegin, TaskEnd, TaskStatus};

/// A task under way: what everything about it needs.
pub(super) struct Running<U> {
    pub(super) gateway: Gateway<U>,
    pub(super) asked: Asked,
    pub(super) task_id: Arc<str>,
    pub(super) journal: TaskJournal,
    pub(super) hold: Micros,
    /// What it consumes at most.
    pub(super) worst: Usage,
    /// Milliseconds UTC.
    pub(super) created_at: i64,
    /// Tells those who sent the same key how it ended.
    key: Option<KeyGuard>,
    /// Held until the task has ended.
    _slot: CallerSlot,
    _work: WorkGuard,
}

/// What a task is begun with.
pub(super) struct Begin {
    pub(super) caller: Arc<Caller>,
    pub(super) slot: CallerSlot,
    pub(super) key: Option<KeyGuard>,
    pub(super) asked: Asked,
}

impl<U: ModelUpstream> Gateway<U> {
    /// Serves a whole answer. Dropping the future cancels the task, unless it has a key.
    pub(super) async fn whole(&self, begin: Begin) -> Finished {
        let (running, job) = self.begin(begin);
        let task_id = running.task_id.clone();
        let keep_on = running.asked.idempotency.is_some();
        let (left, cancel) = oneshot::channel::<()>();
        let cut = self.work.has_been_cut();
        // Boxed where it is made: it is large, and would be copied several times on its way.
        let run = tokio::spawn(Box::pin(async move {
            let left = async {
                // Resolves when the other half is dropped: the caller has left.
                let _ = cancel.await;
                if keep_on {
                    std::future::pending::<()>().await;
                }
            };
            let cancel = async {
                tokio::select! {
                    () = left => {}
                    () = cut => {}
                }
            };
            running.whole(job, cancel).await
        }));
        let finished = run.await.unwrap_or_else(|_| Err(Arc::new(ApiError::internal().of_task(&task_id))));
        drop(left);
        finished
    }

    /// Serves a stream: resolves at its first content. Dropping the future cancels the task.
    pub(super) async fn streamed(&self, begin: Begin) -> Result<StreamStart, Arc<ApiError>> {
        let (running, job) = self.begin(begin);
        let task_id = running.task_id.clone();
        let (started, start) = oneshot::channel();
        let run = tokio::spawn(Box::pin(running.streamed(job, started)));
        match start.await {
            Ok(start) => start,
            Err(_) => {
                let panicked = run.await.is_err();
                tracing::error!(task = %task_id, panicked, "a stream ended without a word");
                Err(Arc::new(ApiError::internal().of_task(&task_id)))
            }
        }
    }

    /// The request's fields, sealed, where the pool keeps them.
    fn content_of(&self, task_id: &str, asked: &Asked) -> Option<Value> {
        let snapshot = self.catalog.snapshot();
        snapshot.configs.get(asked.pool()?).filter(|pool| pool.store_content)?;
        let text = serde_json::to_string(&*asked.input).ok()?;
        Some(self.catalog.seal_content(task_id, &text))
    }

    fn begin(&self, begin: Begin) -> (Running<U>, Job<Ask>) {
        let Begin { caller, slot, key, asked } = begin;
        let task_id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let ask = Ask::new(asked.operation, asked.input.clone());
        // A byte is a token at most.
        let worst = Usage { input_tokens: ask.fields.len() as u64, ..asked.worst };
        let ask = Ask {
            files: asked.files.clone(),
            thinking: asked.thinking,
            min_content_chars: asked.min_content_chars,
            worst,
            ..ask
        };
        let hold = asked.prices.hold(&worst);
        let created_at = self.engine.clock().now().as_millis() as i64;
        let begin = TaskBegin {
            id: task_id.to_string(),
            caller_id: caller.id.clone(),
            idempotency: asked.idempotency.clone(),
            task_type: asked.task_type.clone(),
            asked: asked.asked.clone(),
            alias: asked.alias.clone(),
            pool: asked.pool().map(ToString::to_string),
            capability: asked.capability(),
            operation: asked.operation.as_str(),
            stream: asked.stream,
            request_summary: asked.summary(self.content_of(&task_id, &asked)),
            metadata: asked.metadata.clone(),
            hold,
            prices: asked.prices.clone(),
            created_at,
        };
        let job = Job {
            task: task_id.clone(),
            route: asked.route.clone(),
            stream: asked.stream || asked.operation.answers_a_file(),
            // Four bytes to a token, as usage is estimated.
            needs: Needs { context_tokens: worst.input_tokens / 4, ..asked.needs.clone() },
            expected: Usage { input_tokens: worst.input_tokens / 4, ..worst },
            prefer: asked.prefer.clone(),
            region: asked.region.clone(),
            deadline: asked.deadline,
            request: ask,
        };
        let journal = TaskJournal::new(self, task_id.clone(), begin);
        let running = Running {
            gateway: self.clone(),
            asked,
            task_id,
            journal,
            hold,
            worst,
            created_at,
            key,
            _slot: slot,
            _work: Work::begin(&self.work),
        };
        (running, job)
    }
}

impl<U: ModelUpstream> Running<U> {
    fn engine(&self) -> &Engine {
        &self.gateway.engine
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.engine().clock().now().as_millis() as i64
    }

    async fn whole(self, job: Job<Ask>, cancel: impl Future<Output = ()>) -> Finished {
        let upstream: &U = &self.gateway.upstream;
        tokio::pin!(cancel);
        match self.engine().run(upstream, &self.journal, &job, &mut cancel).await {
            Ok(Served::Whole { answer, attempt }) => self.succeeded(answer, attempt).await,
            Ok(Served::Stream(live)) => self.speech(*live, None, cancel).await,
            Err(unserved) => self.unserved(unserved).await,
        }
    }

    async fn streamed(self, job: Job<Ask>, started: oneshot::Sender<Result<StreamStart, Arc<ApiError>>>) {
        let mut started = started;
        let keep_on = self.asked.operation.answers_a_file() && self.asked.idempotency.is_some();
        let served = {
            let upstream: &U = &self.gateway.upstream;
            let left = async {
                tokio::select! {
                    () = started.closed(), if !keep_on => {}
                    () = self.gateway.work.has_been_cut() => {}
                }
            };
            self.engine().run(upstream, &self.journal, &job, left).await
        };
        match served {
            Ok(Served::Stream(live)) if self.asked.operation.answers_a_file() => {
                let content_type = self.content_type(live.source().content_type());
                let (to_caller, start) = stream::file_channel(&self.task_id, &content_type);
                let _ = started.send(Ok(start));
                let left = {
                    let (to_caller, cut) = (to_caller.clone(), self.gateway.work.has_been_cut());
                    async move {
                        tokio::select! {
                            () = to_caller.closed() => {}
                            () = cut => {}
                        }
                    }
                };
                let _ = self.speech(*live, Some(to_caller), left).await;
            }
            Ok(Served::Stream(live)) => self.pump(*live, started).await,
            Ok(Served::Whole { .. }) => {
                let _ = started.send(Err(Arc::new(ApiError::internal().of_task(&self.task_id))));
            }
            Err(unserved) => {
                let (dialect, include_usage) = (self.asked.dialect, self.asked.include_usage);
                let start = match self.unserved(unserved).await {
                    Ok(answer) => Ok(StreamStart::of(&answer, dialect, include_usage)),
                    Err(error) => Err(error),
                };
                let _ = started.send(start);
            }
        }
    }

    async fn pump(
        self,
        live: LiveStream<U::Stream>,
        started: oneshot::Sender<Result<StreamStart, Arc<ApiError>>>,
    ) {
        let (pump, start) = stream::channel(&self.task_id, self.engine().clock());
        let _ = started.send(Ok(start));
        pump.run(self, live).await;
    }

    /// Records a task that was served, and what its caller is told.
    async fn succeeded(&self, answer: Map<String, Value>, attempt: AttemptEnded) -> Finished {
        let (mut output, reported_usage) = Answer::split(answer);
        if let Err(failure) = self.keep_images(&mut output, &attempt).await {
            return Err(Arc::new(self.result_lost(attempt, failure.message).await));
        }
        let answer = self.answer(output, reported_usage, &attempt);
        self.end_well(&answer, attempt).await;
        Ok(answer)
    }

    /// What was made, and will be billed, can't be delivered: asking again would make it again.
    pub(super) async fn result_lost(&self, attempt: AttemptEnded, why: String) -> ApiError {
        tracing::error!(task = %self.task_id, why, "a result could not be kept");
        let failure = Failure::new(Class::Unknown, format!("made, but it could not be kept: {why}"));
        let attempt = AttemptEnded {
            status: AttemptStatus::OutcomeUnknown,
            outcome_unknown: true,
            failure: Some(failure),
            ..attempt
        };
        let error = ApiError::result_lost().of_task(&self.task_id);
        self.end_badly(TaskStatus::OutcomeUnknown, &error, Some(attempt)).await;
        error
    }

    /// What a served task answers.
    pub(super) fn answer(
        &self,
        output: Map<String, Value>,
        reported_usage: Option<Value>,
        attempt: &AttemptEnded,
    ) -> Arc<Answer> {
        let usage = attempt.usage.unwrap_or_default();
        let charged = self.asked.prices.charge(&usage).min(self.hold);
        Arc::new(Answer {
            task_id: self.task_id.clone(),
            operation: self.asked.operation,
            alias: self.asked.alias.clone(),
            created: self.created_at / 1_000,
            output,
            usage,
            // Nonsense is not passed on: what we reckon with is told instead.
            reported_usage: reported_usage.filter(|_| !usage.estimated),
            charged,
            is_template: false,
        })
    }

    /// Settles a served task.
    pub(super) async fn end_well(&self, answer: &Arc<Answer>, attempt: AttemptEnded) {
        let end = TaskEnd {
            task_id: self.task_id.to_string(),
            status: TaskStatus::Succeeded,
            final_model: Some(attempt.name.clone()),
            attempt: Some(self.journal.record(attempt)),
            charge: Some(answer.charged),
            output: serde_json::to_string(&answer.output).ok(),
            usage: Some(answer.usage),
            error: None,
            finished_at: self.now_ms(),
        };
        self.end(end, Ok(answer.clone())).await;
    }

    /// Settles for what a caller took of a stream before it left.
    pub(super) async fn cancelled_after_content(&self, answer: &Answer, attempt: AttemptEnded) {
        let error = ApiError::of(&Stop::Cancelled).of_task(&self.task_id);
        let end = TaskEnd {
            task_id: self.task_id.to_string(),
            status: TaskStatus::Cancelled,
            final_model: Some(attempt.name.clone()),
            attempt: Some(self.journal.record(attempt)),
            charge: Some(answer.charged),
            output: serde_json::to_string(&answer.output).ok(),
            usage: Some(answer.usage),
            error: Some(error.record()),
            finished_at: self.now_ms(),
        };
        self.end(end, Err(Arc::new(error))).await;
    }

    /// Releases the hold of a task that was not served.
    pub(super) async fn end_badly(
        &self,
        status: TaskStatus,
        error: &ApiError,
        attempt: Option<AttemptEnded>,
    ) {
        let end = TaskEnd {
            task_id: self.task_id.to_string(),
            status,
            attempt: attempt.map(|attempt| self.journal.record(attempt)),
            charge: None,
            output: None,
            usage: None,
            error: Some(error.record()),
            final_model: None,
            finished_at: self.now_ms(),
        };
        self.end(end, Err(Arc::new(error.clone()))).await;
    }

    /// Commits an end, and tells whoever waits for the same key.
    async fn end(&self, end: TaskEnd, finished: Finished) {
        let metrics = &self.gateway.metrics;
        metrics.task_ended(end.status, self.asked.capability());
        if let Some(charge) = end.charge {
            metrics.charged(self.asked.pool(), charge);
        }
        self.gateway.events.tell("task", || {
            json!({"task_id": end.task_id, "status": end.status.as_str(), "pool": self.asked.pool().map(GroupKey::as_str),
                   "asked": self.asked.asked, "capability": self.asked.capability().as_str(), "model": end.final_model})
        });
        self.gateway.ledger.end(end).await;
        self.publish(finished);
    }

    /// Nobody is told of a task that its caller left: the next with the same key runs it.
    fn publish(&self, finished: Finished) {
        let left = matches!(&finished, Err(error) if error.code == CANCELLED);
        if let Some(key) = &self.key
            && !left
        {
            key.publish(finished);
        }
    }

    async fn unserved(&self, unserved: Unserved<Refused>) -> Finished {
        let Unserved { stop, attempt, begun } = unserved;
        if let Some(template) = self.template(&stop) {
            return Ok(self.end_with_template(&template, attempt).await);
        }
        let error = match stop {
            // Not the caller left: we do. What was sent may have been done.
            Stop::Cancelled if self.gateway.work.is_cut() => match &attempt {
                Some(attempt) if attempt.outcome_unknown => ApiError::outcome_unknown(),
                _ => ApiError::shutting_down(),
            },
            _ => ApiError::of(&stop),
        };
        let error = self.in_the_callers_words(error).of_task(&self.task_id);
        let status = match stop {
            Stop::Cancelled if error.code == "outcome_unknown" => TaskStatus::OutcomeUnknown,
            Stop::OutcomeUnknown => TaskStatus::OutcomeUnknown,
            Stop::Cancelled => TaskStatus::Cancelled,
            _ => TaskStatus::Failed,
        };
        if begun {
            self.end_badly(status, &error, attempt).await;
        } else {
            self.gateway.metrics.task_ended(status, self.asked.capability());
            if let Some(begin) = self.journal.unwritten() {
                self.gateway.ledger.refuse(begin, status, error.record());
            }
            if error.code != DUPLICATE_KEY {
                self.publish(Err(Arc::new(error.clone())));
            }
        }
        if let Stop::NoAvailableModel { why, .. } = &stop {
            let now = self.engine().clock().now();
            let why: Vec<_> =
                why.why.iter().map(|(name, why)| format!("{name}: {}", why.describe(now))).collect();
            tracing::warn!(task = %self.task_id, pool = %self.asked.asked, why = %why.join("; "), "no available model");
        }
        Err(Arc::new(error))
    }

    /// A file's field is called as the caller called it.
    fn in_the_callers_words(&self, error: ApiError) -> ApiError {
        let name = match (self.asked.dialect, error.param.as_deref()) {
            (Dialect::Forebay, Some("file")) => "input.audio",
            (Dialect::Forebay, Some("image" | "image[]")) => "input.image",
            (Dialect::Forebay, Some("mask")) => "input.mask",
            _ => return error,
        };
        let rest = error.message.split_once(": ").map_or("", |(_, rest)| rest);
        ApiError { message: format!("{name}: {rest}"), param: Some(name.into()), ..error }
    }

    /// What the pool says in place of an answer, where every answer was a bad one.
    fn template(&self, stop: &Stop<Refused>) -> Option<String> {
        let Stop::UpstreamFailed(failure) = stop else { return None };
        if failure.class != Class::BadAnswer || self.asked.operation != Operation::Chat {
            return None;
        }
        let snapshot = self.gateway.catalog.snapshot();
        snapshot.configs.get(self.asked.pool()?)?.fallback_template.clone()
    }

    /// Succeeds with the pool's template: marked, and free of charge.
    async fn end_with_template(&self, template: &str, attempt: Option<AttemptEnded>) -> Arc<Answer> {
        let choices = json!([{"index": 0, "message": {"role": "assistant", "content": template}, "finish_reason": "stop"}]);
        let answer = Arc::new(Answer {
            task_id: self.task_id.clone(),
            operation: self.asked.operation,
            alias: self.asked.alias.clone(),
            created: self.created_at / 1_000,
            output: Map::from_iter([("choices".to_owned(), choices)]),
            usage: Usage::default(),
            reported_usage: None,
            charged: Micros::ZERO,
            is_template: true,
        });
        let end = TaskEnd {
            task_id: self.task_id.to_string(),
            status: TaskStatus::Succeeded,
            final_model: Some(FALLBACK_TEMPLATE.into()),
            attempt: attempt.map(|attempt| self.journal.record(attempt)),
            charge: Some(Micros::ZERO),
            output: serde_json::to_string(&answer.output).ok(),
            usage: Some(answer.usage),
            error: None,
            finished_at: self.now_ms(),
        };
        self.end(end, Ok(answer.clone())).await;
        answer
    }
}
