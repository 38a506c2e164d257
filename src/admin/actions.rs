//! What operators do, whichever way they ask: each is live when it returns, and in the audit log.

use std::time::Duration;

use forebay_engine::breaker::{BreakerState, Transition};
use forebay_engine::policy::BreakerPolicy;
use forebay_engine::{GroupKey, ModelId, Moment};
use forebay_wire::import::{Section, parse_row};
use serde_json::{Value, json};
use std::sync::Arc;

use super::Admin;
use super::error::AdminError;
use super::times::ms;
use crate::catalog::{Author, Difference, ModelTarget, Snapshot};
use crate::ledger::BreakerEvent;

impl Admin {
    /// Creates or changes a row of configuration.
    pub(super) async fn put_row(
        &self,
        by: &str,
        section: Section,
        name: &str,
        row: &Value,
    ) -> Result<Difference, AdminError> {
        let item = parse_row(section, name, row).map_err(AdminError::Invalid)?;
        Ok(self.catalog.put(item, Author(by)).await?)
    }

    /// Closes a model's breaker. Returns whether it was not closed before.
    pub(super) async fn reset_breaker(&self, by: &str, name: &str) -> Result<bool, AdminError> {
        let model = self.model(name)?;
        let was_open = self.reset_one(by, &model);
        self.audit_breaker(by, "reset breaker", &model.name, Value::Null).await?;
        Ok(was_open)
    }

    /// Closes the breakers of a pool's members, or of every model. Returns how many were not closed.
    pub(super) async fn reset_breakers(&self, by: &str, pool: Option<&GroupKey>) -> Result<u32, AdminError> {
        let snapshot = self.catalog.snapshot();
        let models = snapshot.models.values().filter(|model| pool.is_none() || model.pool.as_ref() == pool);
        let mut count = 0;
        for model in models {
            let state = self.state.model(&model.id, BreakerPolicy::default());
            if state.breaker.view(self.now()).state != BreakerState::Closed && self.reset_one(by, model) {
                count += 1;
            }
        }
        let object = pool.map_or("all breakers".to_owned(), |key| format!("breakers of pool {key}"));
        self.catalog
            .audit(Author(by), "reset", &object, None, Some(&json!({ "count": count }).to_string()))
            .await?;
        Ok(count)
    }

    fn reset_one(&self, by: &str, model: &ModelTarget) -> bool {
        let now = self.now();
        let transition = self.state.model(&model.id, BreakerPolicy::default()).breaker.reset(now);
        let was_open = transition.from != BreakerState::Closed;
        self.record(by, model, transition);
        was_open
    }

    /// Opens a model's breaker for so many seconds.
    pub(super) async fn force_breaker(
        &self,
        by: &str,
        name: &str,
        seconds: u32,
    ) -> Result<Moment, AdminError> {
        if !(1..=30 * 86_400).contains(&seconds) {
            return Err(AdminError::invalid("seconds", "must be between 1 and 2592000"));
        }
        let model = self.model(name)?;
        let now = self.now();
        let until = now + Duration::from_secs(seconds.into());
        let transition = self.state.model(&model.id, BreakerPolicy::default()).breaker.force_open(until, now);
        self.record(by, &model, transition);
        self.audit_breaker(by, "force breaker open", &model.name, json!({ "seconds": seconds })).await?;
        Ok(until)
    }

    async fn audit_breaker(
        &self,
        by: &str,
        action: &str,
        model: &str,
        after: Value,
    ) -> Result<(), AdminError> {
        let after = (!after.is_null()).then(|| after.to_string());
        Ok(self.catalog.audit(Author(by), action, &format!("model {model}"), None, after.as_deref()).await?)
    }

    fn record(&self, by: &str, model: &ModelTarget, transition: Transition) {
        self.events.tell("breaker", || {
            json!({"model": &*model.name, "from": transition.from.as_str(), "to": transition.to.as_str(),
                   "cause": transition.cause.as_str(), "by": by})
        });
        self.breaker_events.record(BreakerEvent {
            at: ms(transition.at),
            model_id: model.id.to_string(),
            model: model.name.to_string(),
            from: transition.from.as_str().to_owned(),
            to: transition.to.as_str().to_owned(),
            cause: transition.cause.as_str().to_owned(),
            detail: None,
            generation: transition.generation,
            by_operator: Some(by.to_owned()),
            attempt: None,
        });
        self.state.room().open();
    }

    /// Ends every cooldown of an account, at all models.
    pub(super) async fn end_cooldowns(&self, by: &str, label: &str) -> Result<(), AdminError> {
        let snapshot = self.catalog.snapshot();
        let account = snapshot.rows.find(Section::Accounts, label);
        let account = account.ok_or_else(|| AdminError::not_found(format!("account {label}")))?;
        for pool in snapshot.alone.values() {
            for binding in pool.members().flat_map(|member| &member.accounts) {
                if *binding.account.id.0 == *account.id {
                    binding.cooldown.clear();
                    binding.account.state.forgive();
                }
            }
        }
        self.state.room().open();
        Ok(self.catalog.audit(Author(by), "clear cooldown", &format!("account {label}"), None, None).await?)
    }

    /// The model of that name.
    pub(super) fn model(&self, name: &str) -> Result<Arc<ModelTarget>, AdminError> {
        let snapshot = self.catalog.snapshot();
        let id = named(&snapshot, name).ok_or_else(|| AdminError::not_found(format!("model {name}")))?;
        snapshot.models.get(&id).cloned().ok_or_else(|| AdminError::not_found(format!("model {name}")))
    }
}

fn named(snapshot: &Snapshot, name: &str) -> Option<ModelId> {
    snapshot.rows.find(Section::Models, name).map(|row| ModelId(row.id.as_str().into()))
}
