//! The engine's [`Journal`] port on the ledger: an attempt is durable before it is sent.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_engine::attempt::{AttemptEnded, AttemptSent};
use forebay_engine::{Class, Journal};

use super::Gateway;
use crate::catalog::Catalog;
use crate::ledger::{AttemptBegin, AttemptEnd, Ledger, Micros, Refused, TaskBegin};
use crate::telemetry::Metrics;

/// The record of one task.
pub(super) struct TaskJournal {
    ledger: Ledger,
    catalog: Arc<Catalog>,
    metrics: Arc<Metrics>,
    task_id: Arc<str>,
    /// Written together with the first attempt.
    begin: Mutex<Option<TaskBegin>>,
}

impl TaskJournal {
    pub(super) fn new<U>(gateway: &Gateway<U>, task_id: Arc<str>, begin: TaskBegin) -> Self {
        Self {
            ledger: gateway.ledger.clone(),
            catalog: gateway.catalog.clone(),
            metrics: gateway.metrics.clone(),
            task_id,
            begin: Mutex::new(Some(begin)),
        }
    }

    /// The task, while nothing of it is written.
    pub(super) fn unwritten(&self) -> Option<TaskBegin> {
        self.begin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// An ended attempt as the ledger keeps it, with what we pay for it at its model's price.
    pub(super) fn record(&self, ended: AttemptEnded) -> AttemptEnd {
        let snapshot = self.catalog.snapshot();
        let prices = snapshot.models.get(&ended.model).map(|model| &model.prices);
        // A refusal that says why did no work; what answered badly, or nobody knows how, may have.
        let refused = ended.failure.as_ref().is_some_and(|failure| {
            !ended.outcome_unknown && !matches!(failure.class, Class::Unknown | Class::BadAnswer)
        });
        let cost = match &ended.usage {
            Some(usage) => prices.map(|prices| prices.charge(usage)),
            None => refused.then_some(Micros::ZERO),
        };
        if let Some(cost) = cost {
            self.metrics.paid(&ended.name, cost);
        }
        let (http_status, error_class, error_message) = match ended.failure {
            Some(failure) => (failure.http_status, Some(failure.class), Some(failure.message)),
            None => (None, None, None),
        };
        AttemptEnd {
            task_id: self.task_id.to_string(),
            seq: ended.seq,
            status: ended.status,
            outcome_unknown: ended.outcome_unknown,
            http_status,
            error_class,
            error_message,
            first_content_ms: ended.first_content.map(millis),
            duration_ms: millis(ended.duration),
            provider_task_id: ended.provider_task_id,
            usage: ended.usage,
            cost,
        }
    }
}

impl Journal for TaskJournal {
    type Refusal = Refused;

    async fn sent(&self, before: Option<AttemptEnded>, next: AttemptSent) -> Result<(), Refused> {
        let attempt = AttemptBegin {
            task_id: self.task_id.to_string(),
            seq: next.seq,
            kind: next.kind,
            reason: next.reason,
            provider: next.member.provider.clone(),
            model_id: next.member.model.clone(),
            model: next.member.name.clone(),
            account: next.account,
            started_at: next.at.as_millis() as i64,
            waited_ms: millis(next.waited),
            breaker_generation: next.generation,
        };
        match self.unwritten() {
            Some(task) => self.ledger.begin(task, attempt).await,
            None => self.ledger.attempt(before.map(|ended| self.record(ended)), attempt).await,
        }
    }
}

fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
