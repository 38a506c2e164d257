//! Leave to make one call, held for as long as the call lasts: a breaker ticket, a slot of the
//! model, a slot of the account. Dropping it gives all of it back, whatever happened; and, where
//! nothing was sent, the account's tokens and the request of its day too.

use crate::account::AccountState;
use crate::breaker::{Ticket, Transition, Verdict};
use crate::clock::Moment;
use crate::member::ModelState;
use crate::outcome::Usage;
use crate::pool::Room;
use crate::random::Random;
use crate::sync::Arc;
use crate::upstream::Sent;

/// Leave to make one call.
///
/// [`Permit::settle`] tells the breaker how the call went. A permit that is dropped without it (the
/// caller left, a task was cancelled or panicked) gives its slots back and counts as nothing.
#[derive(Debug)]
pub struct Permit {
    model: Arc<ModelState>,
    account: Option<Held>,
    /// `None` once settled.
    ticket: Option<Ticket>,
    generation: u64,
    room: Room,
    /// Set once the call may have reached the upstream; `None` before the call is made.
    sent: Option<Sent>,
}

/// What a call has taken of its account.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) account: Arc<AccountState>,
    /// The account's limit at that time, and the tokens that were taken of it.
    pub(crate) tokens: Option<(u64, u64)>,
    /// The end of the day that the call is counted in.
    pub(crate) day_ends: Moment,
}

impl Permit {
    /// Takes over a slot that is already taken.
    pub(crate) fn new(model: Arc<ModelState>, ticket: Ticket, room: Room) -> Self {
        let generation = ticket.generation();
        Self { model, account: None, generation, ticket: Some(ticket), room, sent: None }
    }

    /// Takes over what was taken of an account too.
    pub(crate) fn hold(&mut self, held: Held) {
        self.account = Some(held);
    }

    /// The call is about to be made; its adapter sets `sent` once the request may have left.
    pub(crate) fn watch(&mut self, sent: Sent) {
        self.sent = Some(sent);
    }

    /// The call is known to have used `usage`: what was taken of the account's tokens is made that.
    pub(crate) fn used(&mut self, usage: &Usage, now: Moment) {
        if let Some(Held { account, tokens: Some((max_tpm, taken)), .. }) = &mut self.account {
            account.tokens.correct(*max_tpm, *taken, usage.all_tokens(), now);
            *taken = usage.all_tokens();
        }
    }

    /// The breaker generation that gave it.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Tells the breaker how the call went; the slots stay taken until the drop. Only the first
    /// call counts.
    pub fn settle(&mut self, verdict: Verdict, now: Moment, random: &dyn Random) -> Option<Transition> {
        let ticket = self.ticket.take()?;
        self.model.breaker.settle(&ticket, verdict, now, random)
    }

    /// A stream that was settled as a success died.
    pub fn fail_late(&self, now: Moment, random: &dyn Random) -> Option<Transition> {
        self.model.breaker.fail_late(now, random)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // An uncounted result moves no breaker, so neither the time nor chance matter here.
            self.model.breaker.settle(&ticket, Verdict::Uncounted, Moment::default(), &NoChance);
        }
        if let Some(Held { account, tokens, day_ends }) = &self.account {
            if !self.sent.as_ref().is_some_and(Sent::get) {
                account.unused(*day_ends);
                if let Some((max_tpm, taken)) = tokens {
                    account.tokens.correct(*max_tpm, *taken, 0, Moment::default());
                }
            }
            account.in_flight.release();
        }
        self.model.in_flight.release();
        self.room.open();
    }
}

struct NoChance;

impl Random for NoChance {
    fn next(&self) -> u64 {
        0
    }
}

#[cfg(all(test, feature = "loom"))]
mod loom_tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::BreakerPolicy;

    fn half_open_model() -> Arc<ModelState> {
        let policy = BreakerPolicy { failure_threshold: 1, ..BreakerPolicy::default() };
        let model = Arc::new(ModelState::new(policy));
        model.breaker.force_open(Moment::from_millis(1), Moment::default());
        model
    }

    fn probe(model: &Arc<ModelState>) -> Option<Permit> {
        if !model.in_flight.try_take(Some(2)) {
            return None;
        }
        let (ticket, _) = model.breaker.admit(Moment::from_millis(2), Duration::from_secs(5));
        match ticket {
            Some(ticket) => Some(Permit::new(model.clone(), ticket, Room::default())),
            None => {
                model.in_flight.release();
                None
            }
        }
    }

    #[test]
    fn loom_only_one_of_two_takes_the_probe_and_a_dropped_probe_frees_it() {
        loom::model(|| {
            let model = half_open_model();
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || probe(&model))
            };
            let mine = probe(&model);
            let theirs = other.join().expect("the other thread ends");
            assert_eq!(u32::from(mine.is_some()) + u32::from(theirs.is_some()), 1);
            drop((mine, theirs));
            assert_eq!(model.in_flight.taken(), 0);
            assert!(probe(&model).is_some(), "the slot of a dropped probe is free again");
        });
    }

    #[test]
    fn loom_a_result_that_meets_a_reset_leaves_the_breaker_admitting_and_the_slots_free() {
        loom::model(|| {
            let model = half_open_model();
            let mut permit = probe(&model).expect("half-open lets one through");
            let operator = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    model.breaker.reset(Moment::from_millis(3));
                })
            };
            permit.settle(Verdict::Failure, Moment::from_millis(3), &NoChance);
            drop(permit);
            operator.join().expect("the operator's thread ends");
            assert!(
                model.breaker.admits(Moment::from_millis(3)),
                "the reset came last or the result was old"
            );
            assert_eq!(model.in_flight.taken(), 0);
        });
    }
}
