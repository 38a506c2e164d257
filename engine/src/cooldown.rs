//! Cooldowns: a thing set aside until a time, for a reason.

use crate::clock::Moment;
use crate::outcome::Class;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Why something is set aside, since when and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The class of the failure that caused it.
    pub class: Class,
    /// The failure's own message, without any secret.
    pub message: String,
    /// When it began.
    pub since: Moment,
    /// When it ends.
    pub until: Moment,
}

/// The cooldown of an account, a model, or an account at a model.
#[derive(Debug)]
pub struct Cooldown {
    /// µs; so that looking takes no lock.
    until: AtomicU64,
    reason: Mutex<Option<Reason>>,
}

impl Cooldown {
    /// Not cooling.
    pub fn new() -> Self {
        Self { until: AtomicU64::new(0), reason: Mutex::new(None) }
    }

    /// Until when it is set aside; a past moment when it is not.
    pub fn until(&self) -> Moment {
        Moment::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Whether it is set aside now.
    pub fn is_cooling(&self, now: Moment) -> bool {
        self.until() > now
    }

    /// The reason, while it is set aside.
    pub fn reason(&self, now: Moment) -> Option<Reason> {
        lock(&self.reason).clone().filter(|reason| reason.until > now)
    }

    /// The class of the reason, while it is set aside.
    pub fn class(&self, now: Moment) -> Option<Class> {
        lock(&self.reason).as_ref().filter(|reason| reason.until > now).map(|reason| reason.class)
    }

    /// Sets aside. The later of two deadlines holds, in whichever order they come.
    pub fn set(&self, reason: Reason) {
        let mut held = lock(&self.reason);
        if held.as_ref().is_none_or(|held| held.until < reason.until) {
            self.until.store(reason.until.as_micros(), Ordering::Release);
            *held = Some(reason);
        }
    }

    /// Takes it back at once.
    pub fn clear(&self) {
        let mut held = lock(&self.reason);
        self.until.store(0, Ordering::Release);
        *held = None;
    }
}

impl Default for Cooldown {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn reason(until: u64) -> Reason {
        Reason {
            class: Class::RateLimited,
            message: "429".into(),
            since: Moment::default(),
            until: Moment::from_millis(until),
        }
    }

    #[test]
    fn b1_the_later_of_two_deadlines_holds_in_either_order() {
        for order in [[1_000, 60_000], [60_000, 1_000]] {
            let cooldown = Cooldown::new();
            order.into_iter().for_each(|until| cooldown.set(reason(until)));
            assert_eq!(cooldown.until(), Moment::from_millis(60_000));
            assert!(cooldown.is_cooling(Moment::from_millis(59_999)));
            assert!(!cooldown.is_cooling(Moment::from_millis(60_000)));
        }
    }

    #[test]
    fn clearing_ends_it_at_once() {
        let cooldown = Cooldown::new();
        cooldown.set(reason(60_000));
        cooldown.clear();
        assert!(!cooldown.is_cooling(Moment::default()));
        assert_eq!(cooldown.reason(Moment::default()), None);
    }
}
