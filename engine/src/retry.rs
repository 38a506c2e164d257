//! What a task does after a definite failure: another account, another member, the same model again.

use std::sync::Arc;
use std::time::Duration;

use crate::attempt::AttemptKind;
use crate::breaker::BreakerState;
use crate::clock::Moment;
use crate::member::{AccountId, Member, ModelId};
use crate::outcome::{Class, Failure};
use crate::policy::Routing;
use crate::pool::Pool;
use crate::route::{LONGEST_RATE_WAIT, Task};
use crate::select::{Selection, Why, Wish};
use crate::upstream::{Journal, Upstream};

/// The jitter of a retry's wait, in percent.
const WAIT_JITTER: u32 = 20;

/// The next attempt: with whom, why, and after what wait.
pub(crate) struct Next {
    pub(crate) selection: Selection,
    pub(crate) kind: AttemptKind,
    pub(crate) reason: String,
    pub(crate) waited: Duration,
}

/// What a task may still do.
pub(crate) struct Allowance {
    pub(crate) deadline: Moment,
    pub(crate) first: ModelId,
    pub(crate) tried: Vec<ModelId>,
    /// Accounts tried at the model that was asked last.
    pub(crate) tried_accounts: Vec<AccountId>,
    pub(crate) requests: u32,
    pub(crate) retries: u32,
    pub(crate) fallbacks: u32,
    pub(crate) only_rate_limits: bool,
}

impl Allowance {
    /// Counts the attempt that is about to be made.
    pub(crate) fn enter(&mut self, next: &Next) {
        self.requests += 1;
        let model = &next.selection.member.model;
        if self.tried.last() != Some(model) {
            self.tried_accounts.clear();
        }
        if !self.tried.contains(model) {
            self.tried.push(model.clone());
        }
        if let Some(binding) = next.selection.binding()
            && !self.tried_accounts.contains(&binding.account.id)
        {
            self.tried_accounts.push(binding.account.id.clone());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Closed,
    Any,
}

impl<U: Upstream, J: Journal> Task<'_, U, J> {
    /// What to do after a definite failure, in the order of the engine's design, section 5.
    pub(crate) async fn after(
        &self,
        failure: &Failure,
        member: &Arc<Member>,
        pool: &Arc<Pool>,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> Option<Next> {
        if allowance.requests >= routing.max_requests || self.now() >= allowance.deadline {
            return None;
        }
        if failure.class.blames_account()
            && allowance.tried_accounts.len() < 2
            && let Some(next) = self.other_account(failure, member, pool, routing, allowance)
        {
            return Some(next);
        }
        let at_once =
            pool.policy.switch_first || failure.class.switches_at_once() || failure.class == Class::Unknown;
        if at_once && let Some(next) = self.fallback(failure, pool, routing, allowance, Standing::Closed) {
            return Some(next);
        }
        let retry_last = failure.class == Class::NotSent;
        if retry_last && let Some(next) = self.fallback(failure, pool, routing, allowance, Standing::Any) {
            return Some(next);
        }
        // What may have been done is asked of somebody else, if of anybody.
        if (failure.class != Class::Unknown || pool.policy.retry_unknown)
            && let Some(next) = self.retry(failure, pool, routing, allowance).await
        {
            return Some(next);
        }
        let pool = self.engine.pool(&self.job.route)?;
        self.fallback(failure, &pool, routing, allowance, Standing::Any)
    }

    fn other_account(
        &self,
        failure: &Failure,
        member: &Arc<Member>,
        pool: &Pool,
        routing: &Routing,
        allowance: &Allowance,
    ) -> Option<Next> {
        let wish = Wish {
            only: Some(&member.model),
            tried_accounts: &allowance.tried_accounts,
            ..self.wish(routing, pool)
        };
        let selection = pool.pick(&wish, &*self.engine.random, self.now()).ok()?;
        let reason = format!("another account after {}", failure.class);
        Some(Next { selection, kind: AttemptKind::Retry, reason, waited: Duration::ZERO })
    }

    fn fallback(
        &self,
        failure: &Failure,
        pool: &Pool,
        routing: &Routing,
        allowance: &mut Allowance,
        standing: Standing,
    ) -> Option<Next> {
        if allowance.tried.len() >= routing.max_models as usize {
            return None;
        }
        let now = self.now();
        let wish = Wish {
            tried: &allowance.tried,
            closed_only: standing == Standing::Closed,
            ..self.wish(routing, pool)
        };
        let selection = pool.pick(&wish, &*self.engine.random, now).ok()?;
        let closed = selection.member.state.breaker.view(now).state == BreakerState::Closed;
        let free = closed && allowance.fallbacks == 0;
        if !free && !pool.state.spend(routing.retry_budget, now) {
            return None;
        }
        allowance.fallbacks += 1;
        let mut reason = format!("fallback after {}", failure.class);
        let why = pool.no_pick(&Wish { tried: &allowance.tried, ..wish }, now).why;
        for (name, why) in why.into_iter().filter(|(_, why)| *why != Why::Tried) {
            reason.push_str(&format!("; passed over {name}: {}", why.describe(now)));
        }
        Some(Next { selection, kind: AttemptKind::Fallback, reason, waited: Duration::ZERO })
    }

    async fn retry(
        &self,
        failure: &Failure,
        pool: &Pool,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> Option<Next> {
        let policy = routing.retry(pool.capability);
        let untried = pool.usable(&Wish { tried: &allowance.tried, ..self.wish(routing, pool) }, self.now());
        let models_left = (routing.max_models as usize).saturating_sub(allowance.tried.len());
        let reserved = untried.min(models_left) as u32;
        let requests_left = routing.max_requests - allowance.requests;
        if allowance.retries >= policy.retries || requests_left <= reserved {
            return None;
        }
        let wish = Wish { only: Some(&allowance.first), ..self.wish(routing, pool) };
        let now = self.now();
        if !pool.no_pick(&wish, now).able {
            return None;
        }
        let wait = self.engine.random.jitter(policy.wait(allowance.retries), WAIT_JITTER);
        let until = now + wait.max(failure.retry_after.unwrap_or_default().min(LONGEST_RATE_WAIT));
        if until >= allowance.deadline || !pool.state.spend(routing.retry_budget, now) {
            return None;
        }
        allowance.retries += 1;
        self.engine.clock.sleep_until(until).await;
        // Deactivated, opened or filled during the wait: the next step asks the others.
        let pool = self.engine.pool(&self.job.route)?;
        let selection = pool.pick(&wish, &*self.engine.random, self.now()).ok()?;
        let reason = format!("retry {} of {} after {}", allowance.retries, policy.retries, failure.class);
        Some(Next { selection, kind: AttemptKind::Retry, reason, waited: now.until(until) })
    }
}
