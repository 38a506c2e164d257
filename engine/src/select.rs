//! The choice of a member and an account.
//!
//! A tier is drawn from by weight as it stands, and a draw that can't serve is drawn again: what
//! remains is exactly the distribution among those that can. Only when several draws in a row fail
//! is every member looked at. Looking takes nothing; the member finally chosen takes its slot, its
//! breaker's ticket, and its account's slot and rate token, in this order.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{BreakerState, Transition};
use crate::clock::Moment;
use crate::limits::at_least_a_moment;
use crate::member::{AccountId, Binding, Member, ModelId, Needs};
use crate::outcome::Class;
use crate::permit::Permit;
use crate::policy::Strategy;
use crate::pool::{Pool, Tier};
use crate::random::Random;

/// Draws from a tier as it stands before every member is looked at.
const QUICK_DRAWS: usize = 4;

/// What a pick must heed.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// What the request asks of a model.
    pub needs: Needs,
    /// Members that this task has tried.
    pub tried: &'a [ModelId],
    /// Only this member.
    pub only: Option<&'a ModelId>,
    /// Accounts that this task has tried, at the member of `only`.
    pub tried_accounts: &'a [AccountId],
    /// Only members whose breaker is Closed.
    pub closed_only: bool,
    /// After what time a probe's slot may be taken back.
    pub lease: Duration,
}

impl Wish<'_> {
    /// Any member that can serve; a lease of two minutes.
    pub const fn any(needs: Needs) -> Self {
        Self {
            needs,
            tried: &[],
            only: None,
            tried_accounts: &[],
            closed_only: false,
            lease: Duration::from_secs(120),
        }
    }

    fn admits(&self, member: &Member) -> bool {
        self.only.is_none_or(|only| *only == member.model)
            && !self.tried.contains(&member.model)
            && self.needs.missing_in(&member.features).is_none()
    }
}

/// A member with leave to call it.
#[derive(Debug)]
pub struct Selection {
    /// The member.
    pub member: Arc<Member>,
    /// The place of its account among its bindings; `None` for a keyless provider.
    pub binding: Option<usize>,
    /// The revision of that account's key.
    pub key_revision: u64,
    /// Leave to make one call.
    pub permit: Permit,
    /// A transition of its breaker that admitting it caused.
    pub transition: Option<Transition>,
}

impl Selection {
    /// The account, where there is one.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.and_then(|place| self.member.accounts.get(place))
    }
}

/// Why one member can't be picked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// This task has tried it.
    Tried,
    /// It lacks a feature that the request needs.
    Lacks(&'static str),
    /// Its breaker admits nobody before this.
    Breaker(Moment),
    /// It, or each of its accounts, is set aside until then.
    Cooling(Class, Moment),
    /// It is full; where a rate is used up, there is a token at that moment.
    Full(Option<Moment>),
    /// It has no account that may be used.
    NoAccount,
}

impl Why {
    /// In words, for an operator.
    pub fn describe(&self, now: Moment) -> String {
        let seconds = |until: &Moment| now.until(*until).as_secs_f64().ceil();
        match self {
            Self::Tried => "tried already".into(),
            Self::Lacks(feature) => format!("lacks {feature}"),
            Self::Breaker(Moment::NEVER) => "breaker forced open".into(),
            Self::Breaker(until) => format!("breaker not admitting for {} s", seconds(until)),
            Self::Cooling(class, until) => format!("cooling down ({class}) for {} s", seconds(until)),
            Self::Full(_) => "full".into(),
            Self::NoAccount => "no usable account".into(),
        }
    }
}

/// Nobody could be picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPick {
    /// Each member and why not it.
    pub why: Vec<(Arc<str>, Why)>,
    /// Some member could be picked by now: it became free between two looks.
    pub able: bool,
}

/// What nobody being picked comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Somebody is merely full: wait. A rate token is there at that moment.
    Full(Option<Moment>),
    /// All that could serve are rate-limited; the first of them is back at that moment.
    RateLimited(Moment),
    /// No member has a feature that the request needs.
    Lacks(&'static str),
    /// Anything else; the first is back at that moment, if ever.
    Unavailable(Option<Moment>),
}

impl NoPick {
    /// Sums the reasons up.
    pub fn shortage(&self) -> Shortage {
        if self.able {
            return Shortage::Full(Some(Moment::default()));
        }
        let reasons = || self.why.iter().map(|(_, why)| why);
        if reasons().any(|why| matches!(why, Why::Full(_))) {
            let token = reasons().filter_map(|why| if let Why::Full(at) = why { *at } else { None }).min();
            return Shortage::Full(token);
        }
        let limited = |why: &Why| match why {
            Why::Cooling(Class::RateLimited, until) => Some(*until),
            _ => None,
        };
        if let Some(first) = reasons().filter_map(limited).min() {
            return Shortage::RateLimited(first);
        }
        if let Some(Why::Lacks(feature)) = reasons().next()
            && reasons().all(|why| matches!(why, Why::Lacks(_)))
        {
            return Shortage::Lacks(feature);
        }
        let back = |why: &Why| match why {
            Why::Breaker(until) | Why::Cooling(_, until) if *until != Moment::NEVER => Some(*until),
            _ => None,
        };
        Shortage::Unavailable(reasons().filter_map(back).min())
    }
}

impl Shortage {
    /// When to come back, as a span from `now`.
    pub fn retry_after(self, now: Moment) -> Option<Duration> {
        match self {
            Self::Full(token) => {
                Some(at_least_a_moment(token.map_or(Duration::from_secs(1), |at| now.until(at))))
            }
            Self::RateLimited(at) => Some(at_least_a_moment(now.until(at))),
            Self::Unavailable(at) => at.map(|at| at_least_a_moment(now.until(at))),
            Self::Lacks(_) => None,
        }
    }
}

impl Pool {
    /// Picks a member and takes leave to call it.
    pub fn pick(&self, wish: &Wish<'_>, random: &dyn Random, now: Moment) -> Result<Selection, NoPick> {
        for tier in &self.tiers {
            let picked = match self.policy.strategy {
                Strategy::WeightedRandom => self.draw(tier, wish, random, now),
                Strategy::RoundRobin => self.take_turns(tier, wish, now),
            };
            if let Some(selection) = picked {
                return Ok(selection);
            }
        }
        Err(self.no_pick(wish, now))
    }

    /// Picks without taking anything and without calling anybody: what a dry run counts.
    pub fn dry_pick(&self, wish: &Wish<'_>, random: &dyn Random, now: Moment) -> Result<Arc<Member>, NoPick> {
        for tier in &self.tiers {
            let able: Vec<_> = tier.members.iter().filter(|m| self.look(m, wish, now).is_ok()).collect();
            let total: u64 = able.iter().map(|m| u64::from(m.weight.get())).sum();
            if total == 0 {
                continue;
            }
            let mut point = match self.policy.strategy {
                Strategy::WeightedRandom => random.below(total),
                Strategy::RoundRobin => {
                    return Ok(able[self.state.next_turn() % able.len()].clone());
                }
            };
            for member in able {
                let weight = u64::from(member.weight.get());
                if point < weight {
                    return Ok(member.clone());
                }
                point -= weight;
            }
        }
        Err(self.no_pick(wish, now))
    }

    /// Each member and why it can't be picked; members that can be are left out.
    pub fn no_pick(&self, wish: &Wish<'_>, now: Moment) -> NoPick {
        let mut no_pick = NoPick { why: Vec::new(), able: false };
        for member in self.members().filter(|member| wish.only.is_none_or(|only| *only == member.model)) {
            match self.look(member, wish, now) {
                Ok(()) => no_pick.able = true,
                Err(why) => no_pick.why.push((member.name.clone(), why)),
            }
        }
        no_pick
    }

    /// How many members that `wish` does not exclude could be picked now.
    pub(crate) fn usable(&self, wish: &Wish<'_>, now: Moment) -> usize {
        self.members().filter(|member| self.look(member, wish, now).is_ok()).count()
    }

    fn draw(&self, tier: &Tier, wish: &Wish<'_>, random: &dyn Random, now: Moment) -> Option<Selection> {
        let total = tier.total();
        for _ in 0..QUICK_DRAWS.min(tier.members.len()) {
            let point = random.below(total);
            let place = tier.sums.partition_point(|sum| *sum <= point);
            if let Ok(selection) = self.take(&tier.members[place], wish, now) {
                return Some(selection);
            }
        }
        let mut left: Vec<_> = tier.members.iter().filter(|m| self.look(m, wish, now).is_ok()).collect();
        while !left.is_empty() {
            let total = left.iter().map(|member| u64::from(member.weight.get())).sum();
            let mut point = random.below(total);
            let place = left
                .iter()
                .position(|member| {
                    let weight = u64::from(member.weight.get());
                    let hit = point < weight;
                    point = point.saturating_sub(weight);
                    hit
                })
                .unwrap_or(0);
            let member = left.swap_remove(place);
            if let Ok(selection) = self.take(member, wish, now) {
                return Some(selection);
            }
        }
        None
    }

    fn take_turns(&self, tier: &Tier, wish: &Wish<'_>, now: Moment) -> Option<Selection> {
        let first = self.state.next_turn();
        (0..tier.members.len())
            .map(|step| &tier.members[(first.wrapping_add(step)) % tier.members.len()])
            .find_map(|member| self.take(member, wish, now).ok())
    }

    /// Whether a member could be picked now. Changes nothing.
    fn look(&self, member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
        self.look_at_model(member, wish, now)?;
        if !member.state.in_flight.has_room(member.max_concurrency) {
            return Err(Why::Full(None));
        }
        self.look_at_accounts(member, wish, now)
    }

    fn look_at_model(&self, member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
        if !wish.admits(member) {
            return Err(wish.needs.missing_in(&member.features).map_or(Why::Tried, Why::Lacks));
        }
        let state = &member.state;
        if !state.breaker.admits(now) {
            return Err(Why::Breaker(state.breaker.admits_from()));
        }
        if wish.closed_only && state.breaker.view(now).state != BreakerState::Closed {
            return Err(Why::Breaker(now));
        }
        if let Some(class) = cooling(&state.cooldown, now) {
            return Err(Why::Cooling(class, state.cooldown.until()));
        }
        Ok(())
    }

    fn look_at_accounts(&self, member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
        if !member.needs_account {
            return Ok(());
        }
        let mut worst = Why::NoAccount;
        for binding in &member.accounts {
            match look_at_binding(binding, wish, now) {
                Ok(()) => return Ok(()),
                Err(why) => worst = nearer(worst, why),
            }
        }
        Err(worst)
    }

    /// Takes a member's slot, its breaker's ticket and an account, or nothing.
    fn take(&self, member: &Arc<Member>, wish: &Wish<'_>, now: Moment) -> Result<Selection, Why> {
        self.look_at_model(member, wish, now)?;
        self.look_at_accounts(member, wish, now)?;
        let state = &member.state;
        if !state.in_flight.try_take(member.max_concurrency) {
            return Err(Why::Full(None));
        }
        let (ticket, transition) = state.breaker.admit(now, wish.lease);
        let Some(ticket) = ticket else {
            state.in_flight.release();
            return Err(Why::Breaker(state.breaker.admits_from()));
        };
        let mut permit = Permit::new(state.clone(), None, ticket, self.room.clone());
        let binding = if member.needs_account {
            // Failing here drops the permit, which gives ticket and slot back.
            let place = take_account(member, wish, now)?;
            permit.hold(member.accounts[place].account.state.clone());
            Some(place)
        } else {
            None
        };
        let key_revision = binding.map_or(0, |place| member.accounts[place].account.key_revision);
        Ok(Selection { member: member.clone(), binding, key_revision, permit, transition })
    }
}

/// Takes a slot and a rate token of the first account that has both: by priority, equals in turn.
fn take_account(member: &Member, wish: &Wish<'_>, now: Moment) -> Result<usize, Why> {
    let bindings = &member.accounts;
    let mut worst = Why::NoAccount;
    let mut start = 0;
    while start < bindings.len() {
        let priority = bindings[start].priority;
        let equals = bindings[start..].iter().take_while(|binding| binding.priority == priority).count();
        let turn = if equals > 1 { member.state.next_turn() % equals } else { 0 };
        for step in 0..equals {
            let place = start + (turn + step) % equals;
            let binding = &bindings[place];
            match look_at_binding(binding, wish, now).and_then(|()| take_binding(binding, now)) {
                Ok(()) => return Ok(place),
                Err(why) => worst = nearer(worst, why),
            }
        }
        start += equals;
    }
    Err(worst)
}

fn take_binding(binding: &Binding, now: Moment) -> Result<(), Why> {
    let account = &binding.account;
    if !account.state.in_flight.try_take(account.max_concurrency) {
        return Err(Why::Full(None));
    }
    if let Some(rate) = account.rate
        && let Err(token_at) = account.state.rate.try_take(rate, now)
    {
        account.state.in_flight.release();
        return Err(Why::Full(Some(token_at)));
    }
    account.state.used(now);
    Ok(())
}

fn look_at_binding(binding: &Binding, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
    let account = &binding.account;
    if !account.is_enabled {
        return Err(Why::NoAccount);
    }
    if wish.tried_accounts.contains(&account.id) {
        return Err(Why::Tried);
    }
    for cooldown in [&*binding.cooldown, &account.state.cooldown] {
        if let Some(class) = cooling(cooldown, now) {
            return Err(Why::Cooling(class, cooldown.until()));
        }
    }
    if !account.state.in_flight.has_room(account.max_concurrency) {
        return Err(Why::Full(None));
    }
    if let Some(rate) = account.rate {
        let token_at = account.state.rate.free_at(rate);
        if token_at > now {
            return Err(Why::Full(Some(token_at)));
        }
    }
    Ok(())
}

fn cooling(cooldown: &crate::cooldown::Cooldown, now: Moment) -> Option<Class> {
    if cooldown.is_cooling(now) { cooldown.class(now) } else { None }
}

/// Of two reasons why accounts of one member can't serve, the one that says when it can.
fn nearer(a: Why, b: Why) -> Why {
    use Why::{Cooling, Full};
    match (a, b) {
        (Full(a), Full(b)) => Full(if a.is_none() || b.is_none() { None } else { a.min(b) }),
        (full @ Full(_), _) | (_, full @ Full(_)) => full,
        (Cooling(Class::RateLimited, a), Cooling(Class::RateLimited, b)) => {
            Cooling(Class::RateLimited, a.min(b))
        }
        (limited @ Cooling(Class::RateLimited, _), _) | (_, limited @ Cooling(Class::RateLimited, _)) => {
            limited
        }
        (Cooling(class, a), Cooling(_, b)) if a <= b => Cooling(class, a),
        (Cooling(..), cooling @ Cooling(..)) => cooling,
        (cooling @ Cooling(..), _) | (_, cooling @ Cooling(..)) => cooling,
        (a, _) => a,
    }
}
