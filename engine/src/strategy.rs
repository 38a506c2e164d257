//! Which member of a tier is tried first: the four strategies, and regions before all of them.
//!
//! A strategy is written once, over a *ballot*: what it may look at, and how a member is taken (with a
//! permit, or, in a dry run, without).

use std::sync::Arc;

use crate::clock::Moment;
use crate::costs::Shape;
use crate::member::Member;
use crate::policy::Strategy;
use crate::pool::{Pool, Tier};
use crate::random::Random;
use crate::select::Wish;

/// Draws from a tier as it stands before every member is looked at.
const QUICK_DRAWS: usize = 4;

/// One side of a region's border; without a region, everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone<'a> {
    region: Option<&'a str>,
    is_inside: bool,
}

impl<'a> Zone<'a> {
    /// What is gone through in turn: inside the region, then outside of it. A region of which nobody
    /// is (`of` = where each is) changes nothing.
    pub(crate) fn passes<'r>(
        region: Option<&'a str>,
        mut of: impl Iterator<Item = Option<&'r Arc<str>>>,
    ) -> impl Iterator<Item = Self> {
        let inside = Self { region, is_inside: true };
        let passes = if region.is_some() && of.any(|of| inside.holds(of)) {
            [Some(inside), Some(Self { region, is_inside: false })]
        } else {
            [Some(Self { region: None, is_inside: true }), None]
        };
        passes.into_iter().flatten()
    }

    /// Whether what is in the region `of` is on this side.
    pub(crate) fn holds(self, of: Option<&Arc<str>>) -> bool {
        self.region.is_none_or(|region| of.is_some_and(|of| **of == *region) == self.is_inside)
    }
}

impl Pool {
    /// Takes the first member that can be taken: the one that is wished for, or else tier by tier, in
    /// each those of the wished region first, and among them as the pool's strategy says.
    pub(crate) fn choose<T>(
        &self,
        wish: &Wish<'_>,
        random: &dyn Random,
        now: Moment,
        take: &dyn Fn(&Arc<Member>) -> Option<T>,
    ) -> Option<T> {
        if let Some(only) = wish.only {
            return self.members().filter(|member| member.model == *only).find_map(take);
        }
        self.follow(now);
        self.tiers.iter().enumerate().find_map(|(number, tier)| {
            let regions = tier.members.iter().map(|member| member.region.as_ref());
            Zone::passes(wish.region, regions).find_map(|zone| {
                let ballot = Ballot { pool: self, number, tier, zone, wish, random, now, take };
                match self.policy.strategy {
                    Strategy::WeightedRandom => ballot.by_weight(),
                    Strategy::RoundRobin => ballot.in_turn(),
                    Strategy::LeastLatency => ballot.least_latency(),
                    Strategy::LowestCost => ballot.lowest_cost(),
                }
            })
        })
    }
}

struct Ballot<'b, T> {
    pool: &'b Pool,
    /// The tier's place in the pool.
    number: usize,
    tier: &'b Tier,
    zone: Zone<'b>,
    wish: &'b Wish<'b>,
    random: &'b dyn Random,
    now: Moment,
    take: &'b dyn Fn(&Arc<Member>) -> Option<T>,
}

impl<'b, T> Ballot<'b, T> {
    /// Proportional to weight. The tier is drawn from as it stands, and a draw that can't serve is
    /// drawn again: what remains is exactly the distribution among those that can. Only when several
    /// draws in a row fail is every member looked at.
    fn by_weight(&self) -> Option<T> {
        for _ in 0..QUICK_DRAWS.min(self.tier.members.len()) {
            let member = &self.tier.members[self.pool.draw(self.number, self.random)];
            if self.zone.holds(member.region.as_ref())
                && let Some(taken) = (self.take)(member)
            {
                return Some(taken);
            }
        }
        let weights = self.pool.weights(self.number);
        let members = self.tier.members.iter().zip(weights);
        let mut left: Vec<_> = members.filter(|(member, _)| self.is_usable(member)).collect();
        while !left.is_empty() {
            let total = left.iter().map(|(_, weight)| weight).sum();
            let mut point = self.random.below(total);
            let drawn = left.iter().position(|(_, weight)| {
                let is_hit = point < *weight;
                point = point.saturating_sub(*weight);
                is_hit
            });
            let (member, _) = left.swap_remove(drawn.unwrap_or(0));
            if let Some(taken) = (self.take)(member) {
                return Some(taken);
            }
        }
        None
    }

    /// Each in turn; the turns of those that can't serve are shared out among those that can.
    fn in_turn(&self) -> Option<T> {
        let members = &self.tier.members;
        let turn = self.pool.state.next_turn();
        let first = &members[turn % members.len()];
        if self.zone.holds(first.region.as_ref())
            && let Some(taken) = (self.take)(first)
        {
            return Some(taken);
        }
        let usable = self.usable();
        (0..usable.len())
            .find_map(|step| (self.take)(usable[(turn / members.len()).wrapping_add(step) % usable.len()]))
    }

    /// The better of two that chance names: nobody is flooded for having been the best a moment ago.
    fn least_latency(&self) -> Option<T> {
        let members = &self.tier.members;
        if members.len() > 1 {
            for _ in 0..QUICK_DRAWS {
                let (a, b) = self.two_of(members.len());
                let (a, b) = (&members[a], &members[b]);
                if self.is_usable(a)
                    && self.is_usable(b)
                    && let Some(taken) = self.take_lighter(a, b)
                {
                    return Some(taken);
                }
            }
        }
        let usable = self.usable();
        if usable.len() > 1 {
            let (a, b) = self.two_of(usable.len());
            if let Some(taken) = self.take_lighter(usable[a], usable[b]) {
                return Some(taken);
            }
        }
        usable.into_iter().find_map(self.take)
    }

    fn two_of(&self, count: usize) -> (usize, usize) {
        let first = self.random.below(count as u64) as usize;
        let step = 1 + self.random.below(count as u64 - 1) as usize;
        (first, (first + step) % count)
    }

    fn take_lighter(&self, a: &Arc<Member>, b: &Arc<Member>) -> Option<T> {
        let (lighter, other) = if is_lighter(a, b, self.now) { (a, b) } else { (b, a) };
        (self.take)(lighter).or_else(|| (self.take)(other))
    }

    /// The cheapest for the request's shape; equally cheap ones proportional to weight. As with
    /// [`Self::by_weight`], those that can't serve are looked for only after a few draws have met them.
    fn lowest_cost(&self) -> Option<T> {
        let shape = Shape::of(&self.wish.expected);
        let priced = || {
            let members = self.tier.members.iter().zip(&self.tier.rates);
            members.map(|(member, rates)| (shape.costs(rates), member))
        };
        let cheapest = Cheapest::of(priced());
        let drawn = (0..QUICK_DRAWS).find_map(|_| {
            let member = cheapest.draw(self.random)?;
            self.zone.holds(member.region.as_ref()).then(|| (self.take)(member)).flatten()
        });
        // Somebody else may take what was looked at; then it is looked at no more.
        drawn.or_else(|| {
            (0..self.tier.members.len()).find_map(|_| {
                let usable = priced().filter(|(_, member)| self.is_usable(member));
                (self.take)(Cheapest::of(usable).draw(self.random)?)
            })
        })
    }

    fn usable(&self) -> Vec<&'b Arc<Member>> {
        self.tier.members.iter().filter(|member| self.is_usable(member)).collect()
    }

    fn is_usable(&self, member: &Member) -> bool {
        self.zone.holds(member.region.as_ref()) && self.pool.is_usable(member, self.wish, self.now)
    }
}

/// Those of some members that cost least, and the sum of their weights.
#[derive(Default)]
struct Cheapest<'m> {
    cost: u128,
    members: Vec<&'m Arc<Member>>,
    weights: u64,
}

impl<'m> Cheapest<'m> {
    fn of(priced: impl Iterator<Item = (u128, &'m Arc<Member>)>) -> Self {
        let mut cheapest = Self::default();
        for (cost, member) in priced {
            if cheapest.members.is_empty() || cost < cheapest.cost {
                cheapest.members.clear();
                cheapest.weights = 0;
                cheapest.cost = cost;
            }
            if cost == cheapest.cost {
                cheapest.members.push(member);
                cheapest.weights += u64::from(member.weight.get());
            }
        }
        cheapest
    }

    /// One of them, proportional to weight; `None` where there are none.
    fn draw(&self, random: &dyn Random) -> Option<&'m Arc<Member>> {
        let mut point = random.below(self.weights.max(1));
        let hit = self.members.iter().find(|member| {
            let weight = u64::from(member.weight.get());
            let is_hit = point < weight;
            point = point.saturating_sub(weight);
            is_hit
        });
        hit.copied()
    }
}

/// Whether `a` is likely to answer sooner: latency × (calls in flight + 1). Whoever is idle is held to
/// its latency less and less, and so is tried again with one call; whoever has never answered is
/// compared by calls in flight alone.
fn is_lighter(a: &Member, b: &Member, now: Moment) -> bool {
    let load = |member: &Member| {
        let (latency, flying) = (&member.state.latency, member.state.in_flight.taken());
        let held_to = if flying == 0 { latency.faded(now) } else { latency.peak() };
        (flying, held_to.map(|latency| latency.as_micros() * (u128::from(flying) + 1)))
    };
    match (load(a), load(b)) {
        ((_, Some(a)), (_, Some(b))) => a <= b,
        ((a, known_a), (b, known_b)) => (a, known_a.is_some()) <= (b, known_b.is_some()),
    }
}
