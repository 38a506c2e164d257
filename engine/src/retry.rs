//! What a task does after a definite failure: another account, another member, the same model again.

use std::sync::Arc;
use std::time::Duration;

use crate::account::AccountId;
use crate::attempt::AttemptKind;
use crate::breaker::BreakerState;
use crate::clock::Moment;
use crate::member::{Member, ModelId};
use crate::outcome::{Class, Failure};
use crate::policy::Routing;
use crate::pool::Pool;
use crate::queue::LONGEST_RATE_WAIT;
use crate::route::Task;
use crate::select::{Selection, Why, Wish};
use crate::task::Route;
use crate::upstream::{Journal, Upstream};

/// The jitter of a retry's wait, in percent.
const WAIT_JITTER: u32 = 20;

/// The next attempt: with whom, why, and after what wait.
pub(crate) struct Next {
    /// Where it was picked from.
    pub(crate) pool: Arc<Pool>,
    pub(crate) selection: Selection,
    pub(crate) kind: AttemptKind,
    pub(crate) reason: String,
    pub(crate) waited: Duration,
}

/// What a task may still do.
pub(crate) struct Allowance {
    pub(crate) deadline: Moment,
    /// The model that alone is retried: the one that was asked for, else the one asked first.
    first: Option<ModelId>,
    tried: Vec<ModelId>,
    tried_accounts: Vec<(ModelId, AccountId)>,
    /// Requests made, this one included.
    pub(crate) requests: u32,
    retries: u32,
    fallbacks: u32,
    /// The request was too long for a context of so many tokens.
    context_above: Option<u64>,
    pub(crate) only_rate_limits: bool,
}

impl Allowance {
    /// All that the settings allow, until `deadline`.
    pub(crate) fn new(deadline: Moment, route: &Route) -> Self {
        let first = match route {
            Route::Pool(_) => None,
            Route::Model(model) => Some(model.clone()),
        };
        Self {
            deadline,
            first,
            tried: Vec::new(),
            tried_accounts: Vec::new(),
            requests: 0,
            retries: 0,
            fallbacks: 0,
            context_above: None,
            only_rate_limits: true,
        }
    }

    /// Counts the attempt that is about to be made.
    pub(crate) fn enter(&mut self, next: &Next) {
        self.requests += 1;
        let model = &next.selection.member.model;
        if !self.tried.contains(model) {
            self.tried.push(model.clone());
        }
        if self.first.is_none() {
            self.first = Some(model.clone());
        }
        if let Some(binding) = next.selection.binding() {
            let account = (model.clone(), binding.account.id.clone());
            if !self.tried_accounts.contains(&account) {
                self.tried_accounts.push(account);
            }
        }
    }

    /// Whether the request was only too long for `member`, and a larger context may take it. From then
    /// on nobody with a smaller one is asked.
    pub(crate) fn needs_larger_context(&mut self, failure: &Failure, member: &Member) -> bool {
        let refused = member.features.max_context;
        let is_too_long = failure.class == Class::Request && failure.exceeds_context && refused.is_some();
        if is_too_long {
            self.context_above = self.context_above.max(refused);
        }
        is_too_long
    }

    fn accounts_tried_at(&self, model: &ModelId) -> usize {
        self.tried_accounts.iter().filter(|(at, _)| at == model).count()
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
        let class = failure.class;
        if allowance.requests >= routing.requests() || self.now() >= allowance.deadline {
            return None;
        }
        if class.blames_account()
            && let Some(next) = self.other_account(class, member, pool, routing, allowance)
        {
            return Some(next);
        }
        let at_once = pool.policy.switch_first
            || class.switches_at_once()
            || class.blames_caller()
            || class == Class::Unknown;
        if at_once && let Some(next) = self.fallback(class, pool, routing, allowance, Standing::Closed) {
            return Some(next);
        }
        let retry_last = class == Class::NotSent;
        if retry_last && let Some(next) = self.fallback(class, pool, routing, allowance, Standing::Any) {
            return Some(next);
        }
        if self.may_retry(class, pool)
            && let Some(next) = self.retry(failure, pool, routing, allowance).await
        {
            return Some(next);
        }
        // A wait may be over: an edit during it applies.
        let pool = self.engine.pool(&self.job.route)?;
        self.fallback(class, &pool, routing, allowance, Standing::Any)
            .or_else(|| self.candidate(&format!("after {class}"), &pool, routing, allowance))
    }

    /// What may have been done is asked of somebody else, if of anybody, unless the pool's operator
    /// says otherwise; what is too long stays too long.
    fn may_retry(&self, class: Class, pool: &Pool) -> bool {
        let retries_unknown = pool.policy.retry_unknown && matches!(self.job.route, Route::Pool(_));
        !class.blames_caller() && (class != Class::Unknown || retries_unknown)
    }

    fn wish_of(&self, allowance: &Allowance, routing: &Routing, pool: &Pool) -> Wish<'_> {
        Wish { context_above: allowance.context_above, ..self.wish(routing, pool) }
    }

    fn other_account(
        &self,
        class: Class,
        member: &Member,
        pool: &Arc<Pool>,
        routing: &Routing,
        allowance: &Allowance,
    ) -> Option<Next> {
        if allowance.accounts_tried_at(&member.model) >= 2 {
            return None;
        }
        // Another model's accounts are found where that model is.
        let home = match &self.job.route {
            Route::Pool(_) => pool.clone(),
            Route::Model(_) => self.engine.directory.model(&member.model)?,
        };
        let wish = Wish {
            only: Some(&member.model),
            tried_accounts: &allowance.tried_accounts,
            ..self.wish_of(allowance, routing, &home)
        };
        let now = self.now();
        let selection = home.pick(&wish, &*self.engine.random, now).ok()?;
        if !pool.state.spend(routing.retry_budget, now) {
            return None;
        }
        let reason = format!("another account after {class}");
        Some(Next { pool: home, selection, kind: AttemptKind::Retry, reason, waited: Duration::ZERO })
    }

    fn fallback(
        &self,
        class: Class,
        pool: &Arc<Pool>,
        routing: &Routing,
        allowance: &mut Allowance,
        standing: Standing,
    ) -> Option<Next> {
        let is_alone = matches!(self.job.route, Route::Model(_));
        if is_alone || allowance.tried.len() >= routing.models() as usize {
            return None;
        }
        let now = self.now();
        let tried = allowance.tried.clone();
        let wish = Wish {
            tried: &tried,
            closed_only: standing == Standing::Closed,
            ..self.wish_of(allowance, routing, pool)
        };
        let selection = self.pick(pool, &wish).ok()?;
        if !self.may_fall_back(&selection, pool, routing, allowance) {
            return None;
        }
        let mut reason = format!("fallback after {class}");
        let passed_over = pool.no_pick(&wish, now).why.into_iter().filter(|(_, why)| *why != Why::Tried);
        for (name, why) in passed_over {
            reason.push_str(&format!("; passed over {name}: {}", why.describe(now)));
        }
        let kind = AttemptKind::Fallback;
        Some(Next { pool: pool.clone(), selection, kind, reason, waited: Duration::ZERO })
    }

    /// Another model in place of the one that was asked for by name, if that one allows it: looked up
    /// at this moment, and the first that can be called now.
    pub(crate) fn candidate(
        &self,
        why: &str,
        asked: &Pool,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> Option<Next> {
        let Route::Model(model) = &self.job.route else {
            return None;
        };
        if !asked.policy.fallback_on_failure || allowance.tried.len() >= routing.models() as usize {
            return None;
        }
        let mut tried = allowance.tried.clone();
        tried.push(model.clone());
        let wish = Wish { tried: &tried, ..self.wish_of(allowance, routing, asked) };
        let candidates = self.engine.directory.candidates(model, asked.capability);
        let (pool, selection) = candidates.into_iter().find_map(|pool| {
            let selection = self.pick(&pool, &wish).ok()?;
            Some((pool, selection))
        })?;
        if !self.may_fall_back(&selection, asked, routing, allowance) {
            return None;
        }
        let reason = format!("fallback from {model}: {why}");
        Some(Next { pool, selection, kind: AttemptKind::Fallback, reason, waited: Duration::ZERO })
    }

    /// Whether the retry budget has room; the first fallback to a Closed member needs none.
    fn may_fall_back(
        &self,
        to: &Selection,
        pool: &Pool,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> bool {
        let now = self.now();
        let is_closed = to.member.state.breaker.view(now).state == BreakerState::Closed;
        let is_free = is_closed && allowance.fallbacks == 0;
        let may = is_free || pool.state.spend(routing.retry_budget, now);
        allowance.fallbacks += u32::from(may);
        may
    }

    /// Requests that a retry may not use: one for each model that may still be asked.
    fn reserved(&self, pool: &Pool, routing: &Routing, allowance: &Allowance) -> u32 {
        let models_left = routing.models().saturating_sub(allowance.tried.len() as u32);
        let untried = match self.job.route {
            Route::Pool(_) => {
                let wish = Wish { tried: &allowance.tried, ..self.wish_of(allowance, routing, pool) };
                pool.usable(&wish, self.now()) as u32
            }
            // Who that is is asked only when it is time.
            Route::Model(_) => u32::from(pool.policy.fallback_on_failure),
        };
        untried.min(models_left)
    }

    async fn retry(
        &self,
        failure: &Failure,
        pool: &Arc<Pool>,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> Option<Next> {
        let policy = routing.retry(pool.capability);
        let first = allowance.first.clone().filter(|first| allowance.tried.contains(first))?;
        let requests_left = routing.requests() - allowance.requests;
        if allowance.retries >= policy.retries || requests_left <= self.reserved(pool, routing, allowance) {
            return None;
        }
        let wish = Wish { only: Some(&first), ..self.wish_of(allowance, routing, pool) };
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
        Some(Next { pool, selection, kind: AttemptKind::Retry, reason, waited: now.until(until) })
    }
}
