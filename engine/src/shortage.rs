//! Why nobody could be picked, and what that comes to.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::limits::at_least_a_moment;
use crate::outcome::Class;

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

/// Of two reasons why accounts of one member can't serve, the one that says when it can.
pub(crate) fn nearer(a: Why, b: Why) -> Why {
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
