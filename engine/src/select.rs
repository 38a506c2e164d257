//! The choice of a member and an account.
//!
//! Looking takes nothing; the member finally chosen takes its slot, its breaker's ticket, and its
//! account's slot, tokens and rate, in this order. Which member of a tier is looked at first is its
//! strategy's to say.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::account::AccountId;
use crate::breaker::{BreakerState, Transition};
use crate::clock::Moment;
use crate::features::Needs;
use crate::member::{Binding, Member, ModelId};
use crate::outcome::{Class, Usage};
use crate::permit::{Held, Permit};
use crate::pool::Pool;
use crate::random::Random;
use crate::shortage::nearer;
pub use crate::shortage::{NoPick, Shortage, Why};
use crate::strategy::Zone;

/// What a pick must heed.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// What the request asks of a model.
    pub needs: &'a Needs,
    /// What it is expected to use.
    pub expected: Usage,
    /// Members of that region first within their tier, and accounts of it within their priority.
    pub region: Option<&'a str>,
    /// Members that this task has tried.
    pub tried: &'a [ModelId],
    /// Only this member.
    pub only: Option<&'a ModelId>,
    /// Accounts that this task has tried, and where.
    pub tried_accounts: &'a [(ModelId, AccountId)],
    /// Only members whose breaker is Closed.
    pub closed_only: bool,
    /// Only members that declare a context larger than this.
    pub context_above: Option<u64>,
    /// After what time a probe's slot may be taken back.
    pub lease: Duration,
}

impl<'a> Wish<'a> {
    /// Any member that can serve; a lease of two minutes.
    pub const fn any(needs: &'a Needs) -> Self {
        Self {
            needs,
            expected: Usage::NONE,
            region: None,
            tried: &[],
            only: None,
            tried_accounts: &[],
            closed_only: false,
            context_above: None,
            lease: Duration::from_secs(120),
        }
    }

    /// Why `member` is out of the question for this request, whatever its state.
    fn excludes(&self, member: &Member) -> Option<Why> {
        if let Some(feature) = self.needs.missing_in(&member.features) {
            return Some(Why::Lacks(feature));
        }
        let larger = |than| member.features.max_context.is_some_and(|context| context > than);
        if !self.context_above.is_none_or(larger) {
            return Some(Why::Lacks("max_context"));
        }
        let is_out =
            self.only.is_some_and(|only| *only != member.model) || self.tried.contains(&member.model);
        is_out.then_some(Why::Tried)
    }

    fn has_tried(&self, member: &Member, account: &AccountId) -> bool {
        self.tried_accounts.iter().any(|(model, tried)| *model == member.model && tried == account)
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

impl Pool {
    /// Picks a member and takes leave to call it.
    pub fn pick(&self, wish: &Wish<'_>, random: &dyn Random, now: Moment) -> Result<Selection, NoPick> {
        self.choose(wish, random, now, &|member| self.take(member, wish, now).ok())
            .ok_or_else(|| self.no_pick(wish, now))
    }

    /// Picks without taking anything and without calling anybody: what a dry run counts.
    pub fn dry_pick(&self, wish: &Wish<'_>, random: &dyn Random, now: Moment) -> Result<Arc<Member>, NoPick> {
        self.choose(wish, random, now, &|member| self.is_usable(member, wish, now).then(|| member.clone()))
            .ok_or_else(|| self.no_pick(wish, now))
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
        self.members().filter(|member| self.is_usable(member, wish, now)).count()
    }

    /// Whether a member could be picked now. Changes nothing.
    pub(crate) fn is_usable(&self, member: &Member, wish: &Wish<'_>, now: Moment) -> bool {
        self.look(member, wish, now).is_ok()
    }

    fn look(&self, member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
        look_at_model(member, wish, now)?;
        if !member.state.in_flight.has_room(member.max_concurrency) {
            return Err(Why::Full(None));
        }
        look_at_accounts(member, wish, now)
    }

    /// Takes a member's slot, its breaker's ticket and an account, or nothing.
    fn take(&self, member: &Arc<Member>, wish: &Wish<'_>, now: Moment) -> Result<Selection, Why> {
        look_at_model(member, wish, now)?;
        look_at_accounts(member, wish, now)?;
        let state = &member.state;
        if !state.in_flight.try_take(member.max_concurrency) {
            return Err(Why::Full(None));
        }
        let (ticket, transition) = state.breaker.admit(now, wish.lease);
        let Some(ticket) = ticket else {
            state.in_flight.release();
            return Err(Why::Breaker(state.breaker.admits_from()));
        };
        let mut permit = Permit::new(state.clone(), ticket, self.room.clone());
        let binding = if member.needs_account {
            // Failing here drops the permit, which gives ticket and slot back.
            let (place, held) = take_account(member, wish, now)?;
            permit.hold(held);
            Some(place)
        } else {
            None
        };
        let key_revision = binding.map_or(0, |place| member.accounts[place].account.key_revision);
        Ok(Selection { member: member.clone(), binding, key_revision, permit, transition })
    }
}

fn look_at_model(member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
    if let Some(why) = wish.excludes(member) {
        return Err(why);
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

fn look_at_accounts(member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
    if !member.needs_account {
        return Ok(());
    }
    let mut worst = Why::NoAccount;
    for binding in &member.accounts {
        match look_at_binding(member, binding, wish, now) {
            Ok(()) => return Ok(()),
            Err(why) => worst = nearer(worst, why),
        }
    }
    Err(worst)
}

/// Takes what a call needs of the first account that has it: by priority, and among equals those of
/// the wished region first. Returns its place among the bindings.
fn take_account(member: &Member, wish: &Wish<'_>, now: Moment) -> Result<(usize, Held), Why> {
    let bindings = &member.accounts;
    let mut worst = Why::NoAccount;
    let mut start = 0;
    while start < bindings.len() {
        let priority = bindings[start].priority;
        let equals = bindings[start..].iter().take_while(|binding| binding.priority == priority).count();
        let group = start..start + equals;
        let regions = bindings[group.clone()].iter().map(|binding| binding.account.region.as_ref());
        for zone in Zone::passes(wish.region, regions) {
            match take_in_turn(member, group.clone(), zone, wish, now) {
                Ok(taken) => return Ok(taken),
                Err(why) => worst = nearer(worst, why),
            }
        }
        start += equals;
    }
    Err(worst)
}

/// Takes what a call needs of one of the accounts of `zone` at the places of `group`. They take turns;
/// the turns of those that can't serve are shared out among those that can.
fn take_in_turn(
    member: &Member,
    group: Range<usize>,
    zone: Zone<'_>,
    wish: &Wish<'_>,
    now: Moment,
) -> Result<(usize, Held), Why> {
    let turn = if group.len() > 1 { member.state.next_turn() } else { 0 };
    let places = || group.clone().filter(|place| zone.holds(member.accounts[*place].account.region.as_ref()));
    let look = |place: &usize| look_at_binding(member, &member.accounts[*place], wish, now);
    let take = |place: usize| {
        look(&place)?;
        take_binding(&member.accounts[place], wish, now).map(|held| (place, held))
    };
    let count = places().count().max(1);
    let mut worst = match places().nth(turn % count).map(take) {
        None => return Err(Why::NoAccount),
        Some(Ok(taken)) => return Ok(taken),
        Some(Err(why)) => why,
    };
    let usable = || places().filter(|place| look(place).is_ok());
    let count_usable = usable().count();
    for step in 0..count_usable {
        match usable().nth((turn / count + step) % count_usable).map(take) {
            Some(Ok(taken)) => return Ok(taken),
            Some(Err(why)) => worst = nearer(worst, why),
            None => {}
        }
    }
    Err(places().filter_map(|place| look(&place).err()).fold(worst, nearer))
}

fn take_binding(binding: &Binding, wish: &Wish<'_>, now: Moment) -> Result<Held, Why> {
    let account = &binding.account;
    let state = &account.state;
    if !state.in_flight.try_take(account.max_concurrency) {
        return Err(Why::Full(None));
    }
    let expected = wish.expected.all_input_tokens();
    let tokens = account.max_tpm.map(|max_tpm| (max_tpm, expected));
    let taken = tokens
        .map_or(Ok(()), |(max_tpm, expected)| state.tokens.try_take(max_tpm, expected, now))
        .map_err(|at| Why::Full(Some(at)));
    let release = |why| {
        state.in_flight.release();
        why
    };
    taken.map_err(release)?;
    let used = match account.rate.map_or(Ok(()), |rate| state.rate.try_take(rate, now)) {
        Ok(()) => {
            state.try_use(account.daily_limit, now).map_err(|day_ends| Why::Cooling(Class::Quota, day_ends))
        }
        Err(token_at) => Err(Why::Full(Some(token_at))),
    };
    let give_back = |why| {
        if let Some((max_tpm, expected)) = tokens {
            state.tokens.correct(max_tpm, expected, 0, now);
        }
        release(why)
    };
    let day_ends = used.map_err(give_back)?;
    Ok(Held { account: state.clone(), tokens, day_ends })
}

fn look_at_binding(member: &Member, binding: &Binding, wish: &Wish<'_>, now: Moment) -> Result<(), Why> {
    let account = &binding.account;
    if !account.is_enabled {
        return Err(Why::NoAccount);
    }
    if wish.has_tried(member, &account.id) {
        return Err(Why::Tried);
    }
    for cooldown in [&*binding.cooldown, &account.state.cooldown] {
        if let Some(class) = cooling(cooldown, now) {
            return Err(Why::Cooling(class, cooldown.until()));
        }
    }
    if let Some(limit) = account.daily_limit
        && let Some(day_ends) = account.state.used_up_until(limit, now)
    {
        return Err(Why::Cooling(Class::Quota, day_ends));
    }
    if !account.state.in_flight.has_room(account.max_concurrency) {
        return Err(Why::Full(None));
    }
    let rate_at = account.rate.map(|rate| account.state.rate.free_at(rate));
    let expected = wish.expected.all_input_tokens();
    let tokens_at = account.max_tpm.map(|max_tpm| account.state.tokens.free_at(max_tpm, expected));
    match rate_at.max(tokens_at) {
        Some(at) if at > now => Err(Why::Full(Some(at))),
        _ => Ok(()),
    }
}

fn cooling(cooldown: &crate::cooldown::Cooldown, now: Moment) -> Option<Class> {
    if cooldown.is_cooling(now) { cooldown.class(now) } else { None }
}
