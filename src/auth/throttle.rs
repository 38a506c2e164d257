//! Login throttling: after five wrong passwords for a name, or from an address, each further try must
//! wait, and twice as long as the one before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tries that cost nothing.
const FREE: u32 = 5;
/// The wait after the first try beyond them.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);
/// So long after the last wrong try it is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
/// Names and addresses remembered; beyond it the oldest are forgotten.
const REMEMBERED: usize = 10_000;

/// Wrong tries by name and by address.
#[derive(Debug, Default)]
pub struct Throttle {
    wrong: Mutex<HashMap<String, Wrong>>,
}

#[derive(Clone, Copy, Debug)]
struct Wrong {
    tries: u32,
    last: Instant,
}

impl Wrong {
    fn wait(self, now: Instant) -> Option<Duration> {
        let beyond = self.tries.checked_sub(FREE)?;
        let wait = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(beyond.min(20))).min(LONGEST_WAIT);
        wait.checked_sub(now.duration_since(self.last)).filter(|left| !left.is_zero())
    }
}

impl Throttle {
    /// How long a try for `name` from `address` must wait; `None` = it may be looked at now, and then
    /// counts as wrong until [`Throttle::succeeded`] says otherwise, so that tries made at the same
    /// time count too.
    pub fn enter(&self, name: &str, address: &str, now: Instant) -> Option<Duration> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = [format!("name {name}"), format!("address {address}")];
        let wait = keys.iter().filter_map(|key| wrong.get(key)?.wait(now)).max();
        if wait.is_some() {
            return wait;
        }
        if wrong.len() >= REMEMBERED {
            wrong.retain(|_, wrong| now.duration_since(wrong.last) < FORGOTTEN);
        }
        if wrong.len() >= REMEMBERED
            && let Some(oldest) = wrong.iter().min_by_key(|(_, wrong)| wrong.last).map(|(key, _)| key.clone())
        {
            wrong.remove(&oldest);
        }
        for key in keys {
            let entry = wrong.entry(key).or_insert(Wrong { tries: 0, last: now });
            if now.duration_since(entry.last) >= FORGOTTEN {
                entry.tries = 0;
            }
            entry.tries += 1;
            entry.last = now;
        }
        None
    }

    /// The password was right: earlier wrong ones are forgotten.
    pub fn succeeded(&self, name: &str, address: &str) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.remove(&format!("name {name}"));
        wrong.remove(&format!("address {address}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixth_wrong_try_waits_and_each_further_one_longer() {
        let throttle = Throttle::default();
        let mut now = Instant::now();
        for _ in 0..5 {
            assert_eq!(throttle.enter("ops", "1.2.3.4", now), None);
        }
        assert_eq!(throttle.enter("ops", "9.9.9.9", now), Some(Duration::from_secs(1)), "by name");
        assert_eq!(throttle.enter("other", "1.2.3.4", now), Some(Duration::from_secs(1)), "by address");
        assert_eq!(throttle.enter("other", "9.9.9.9", now), None);
        now += Duration::from_secs(1);
        assert_eq!(throttle.enter("ops", "1.2.3.4", now), None);
        assert_eq!(throttle.enter("ops", "1.2.3.4", now), Some(Duration::from_secs(2)));
        throttle.succeeded("ops", "1.2.3.4");
        assert_eq!(throttle.enter("ops", "1.2.3.4", now), None);
    }
}
