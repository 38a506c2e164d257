//! An account's requests in the day that its provider bills by.

use std::time::Duration;

use crate::clock::Moment;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Two ends that are closer than this are the same day's: the clocks may change within one.
const SAME_DAY: Duration = Duration::from_secs(12 * 3_600);

/// How many requests were sent today, and when today ends.
///
/// Until somebody who knows the time zone says when that is, a day is the 24 hours after the first
/// request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Day {
    used: u64,
    ends: Moment,
    /// Its end was told, not guessed.
    is_known: bool,
}

impl Day {
    /// Requests sent in the day of `now`.
    pub(crate) fn used(mut self, now: Moment) -> u64 {
        self.turn(now);
        self.used
    }

    /// When the day of `now` ends.
    pub(crate) fn ends(mut self, now: Moment) -> Moment {
        self.turn(now);
        self.ends
    }

    /// Counts a request, and says which day it belongs to, for [`Day::give_back`].
    pub(crate) fn count(&mut self, now: Moment) -> Moment {
        self.turn(now);
        self.used += 1;
        self.ends
    }

    /// A request of the day that ends at `ends` was never sent.
    pub(crate) fn give_back(&mut self, ends: Moment) {
        if is_same(self.ends, ends) {
            self.used = self.used.saturating_sub(1);
        }
    }

    /// What a record of the day says. The larger count of the same day wins, as the record may lag
    /// behind; a day that is over already changes nothing.
    pub(crate) fn start(&mut self, used: u64, ends: Moment) {
        let is_today = !self.is_known || is_same(self.ends, ends);
        if is_today {
            *self = Self { used: self.used.max(used), ends, is_known: true };
        } else if ends > self.ends {
            *self = Self { used, ends, is_known: true };
        }
    }

    fn turn(&mut self, now: Moment) {
        if self.ends == Moment::default() {
            self.ends = now + DAY;
        }
        if self.ends <= now {
            let days = now.since(self.ends).as_secs() / DAY.as_secs() + 1;
            self.ends = self.ends + DAY * u32::try_from(days).unwrap_or(u32::MAX);
            self.used = 0;
        }
    }
}

fn is_same(a: Moment, b: Moment) -> bool {
    a.since(b).max(b.since(a)) < SAME_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn noon() -> Moment {
        Moment::from_millis(1_700_000_000_000)
    }

    #[test]
    fn a_day_begins_anew_at_its_end_and_again_after_a_week_of_rest() {
        let mut day = Day::default();
        day.start(7, noon() + HOUR);
        day.count(noon());
        assert_eq!((day.used(noon()), day.ends(noon())), (8, noon() + HOUR));
        let tomorrow = noon() + HOUR;
        assert_eq!((day.used(tomorrow), day.ends(tomorrow)), (0, tomorrow + DAY));
        let later = tomorrow + DAY * 7 + HOUR;
        day.count(later);
        assert_eq!((day.used(later), day.ends(later)), (1, tomorrow + DAY * 8));
    }

    #[test]
    fn the_larger_count_of_the_same_day_wins_whoever_comes_first() {
        let mut day = Day::default();
        for _ in 0..3 {
            day.count(noon());
        }
        day.start(2, noon() + HOUR);
        assert_eq!(day.used(noon()), 3, "counted before the record was read");
        day.start(9, noon() + HOUR);
        day.start(5, noon() + HOUR);
        assert_eq!(day.used(noon()), 9);
        day.start(1, noon() + HOUR + DAY);
        assert_eq!(day.used(noon()), 1, "another day");
        day.start(50, noon() + HOUR);
        assert_eq!(day.used(noon()), 1, "a day that is over");
    }

    #[test]
    fn a_request_that_was_not_sent_is_given_back_to_its_own_day_alone() {
        let mut day = Day::default();
        day.start(0, noon() + HOUR);
        let today = day.count(noon());
        day.give_back(today);
        assert_eq!(day.used(noon()), 0);
        let today = day.count(noon());
        day.count(noon() + HOUR);
        day.give_back(today);
        assert_eq!(day.used(noon() + HOUR), 1);
    }
}
