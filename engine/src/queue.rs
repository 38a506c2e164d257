//! A task's first pick, and the queue of those that find no room.

use std::sync::Arc;
use std::time::Duration;

use crate::attempt::AttemptKind;
use crate::clock::Moment;
use crate::policy::Routing;
use crate::pool::{Pool, PoolState};
use crate::retry::{Allowance, Next};
use crate::route::Task;
use crate::select::{NoPick, Selection, Shortage, Wish};
use crate::task::Stop;
use crate::upstream::{Journal, Upstream};

/// A wait for a rate limit that is longer than this is not worth a place in the queue.
pub(crate) const LONGEST_RATE_WAIT: Duration = Duration::from_secs(10);

impl<U: Upstream, J: Journal> Task<'_, U, J> {
    /// The first pick, waiting for room where that is worth it.
    pub(crate) async fn first(
        &self,
        pool: Arc<Pool>,
        routing: &Routing,
        allowance: &mut Allowance,
    ) -> Result<Next, Stop<J::Refusal>> {
        let began = self.now();
        let wish = self.wish(routing, &pool);
        pool.state.count_first(began);
        let picked =
            if pool.state.waiting() == 0 { self.pick(&pool, &wish) } else { Err(pool.no_pick(&wish, began)) };
        let found = match picked {
            Ok(selection) => Ok((pool.clone(), selection)),
            Err(no_pick) => self.queue(&pool, &wish, no_pick, allowance.deadline).await,
        };
        match found {
            Ok((pool, selection)) => {
                let reason = reason(&pool, &selection, self.now());
                let waited = self.now().since(began);
                Ok(Next { pool, selection, kind: AttemptKind::Initial, reason, waited })
            }
            // For whoever asked for a model by name this is its failure: another one may serve.
            Err(stop) => match short(&stop, self.now()) {
                None => Err(stop),
                Some(why) => {
                    let instead = self.candidate(&why, &pool, routing, allowance).ok_or(stop)?;
                    Ok(Next { waited: self.now().since(began), ..instead })
                }
            },
        }
    }

    /// Waits in arrival order until something can be picked, or until that is not to be expected.
    async fn queue(
        &self,
        pool: &Arc<Pool>,
        wish: &Wish<'_>,
        mut no_pick: NoPick,
        deadline: Moment,
    ) -> Result<(Arc<Pool>, Selection), Stop<J::Refusal>> {
        let engine = self.engine;
        let began = self.now();
        let congested = |no_pick: &NoPick, now| {
            let after = no_pick.shortage().retry_after(now).unwrap_or(Duration::from_secs(1));
            Stop::Congested(after)
        };
        // Those that nothing can serve soon are told at once, before they take a place.
        if let Some(stop) = give_up(&no_pick, began, deadline) {
            return Err(stop);
        }
        let Some(_place) = PoolState::join(&pool.state, pool.queue_max()) else {
            return Err(congested(&no_pick, began));
        };
        let patience = |no_pick: &NoPick, since: Moment| {
            let from = if let Shortage::RateLimited(at) = no_pick.shortage() { at.max(since) } else { since };
            (from + pool.policy.queue_timeout).min(deadline)
        };
        let mut limit = patience(&no_pick, began);
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
            no_pick = match self.pick(&pool, wish) {
                Ok(selection) => return Ok((pool, selection)),
                Err(no_pick) => no_pick,
            };
            if let Some(stop) = give_up(&no_pick, now, deadline) {
                return Err(stop);
            }
            limit = limit.max(patience(&no_pick, began));
            if now >= limit {
                return Err(out_of_time(&no_pick));
            }
            let until = match no_pick.shortage() {
                Shortage::Full(Some(at)) => at.max(now + Duration::from_millis(1)).min(limit),
                Shortage::RateLimited(at) => at.min(limit),
                _ => limit,
            };
            tokio::select! {
                () = opened => {}
                () = engine.clock.sleep_until(until) => {}
            }
        }
    }
}

/// Why waiting for room would be in vain, if it would.
fn give_up<R>(no_pick: &NoPick, now: Moment, deadline: Moment) -> Option<Stop<R>> {
    let shortage = no_pick.shortage();
    let retry_after = shortage.retry_after(now);
    match shortage {
        Shortage::Full(_) => None,
        Shortage::RateLimited(at) if now.until(at) <= LONGEST_RATE_WAIT && at < deadline => None,
        Shortage::RateLimited(_) => Some(Stop::RateLimited(retry_after.unwrap_or(LONGEST_RATE_WAIT))),
        Shortage::Lacks(feature) => Some(Stop::Lacks(feature)),
        Shortage::Unavailable(_) => Some(Stop::NoAvailableModel { retry_after, why: no_pick.clone() }),
    }
}

/// Why this member was chosen, in words.
fn reason(pool: &Pool, selection: &Selection, now: Moment) -> String {
    let member = &selection.member;
    let (strategy, base, tier) = (pool.policy.strategy.as_str(), member.weight.get(), member.priority.get());
    if pool.policy.dynamic_weights {
        let effective = pool.effective_weight(member, now);
        format!("{strategy}: weight {base} (effective {effective:.2}) in tier {tier}")
    } else {
        format!("{strategy}: weight {base} in tier {tier}")
    }
}

/// What the model that was asked for is short of, where that is what stops a task.
fn short<R>(stop: &Stop<R>, now: Moment) -> Option<String> {
    match stop {
        Stop::Congested(_) => Some("full".into()),
        Stop::RateLimited(after) => Some(format!("rate-limited for {} s", after.as_secs_f64().ceil())),
        Stop::NoAvailableModel { why, .. } => {
            Some(why.why.first().map_or_else(|| "unusable".into(), |(_, why)| why.describe(now)))
        }
        _ => None,
    }
}
