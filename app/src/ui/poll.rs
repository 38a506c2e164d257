//! One small server function, asked every five seconds: everything on a page that moves.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos_use::{use_document_visibility, use_interval_fn};

use super::ask::Answer;
use crate::port::PortError;

/// How often a page asks, milliseconds.
const EVERY_MS: u64 = 5_000;

/// What a page asks for again and again, with what came of it. The page shows `latest` whatever
/// happens; `trouble` and `age` say how far it can be trusted. Pauses in a hidden tab.
pub(crate) struct Poll<T: Send + Sync + 'static> {
    /// The last good answer.
    pub(crate) latest: RwSignal<Option<T>>,
    /// Why the last try failed; none when it did not.
    pub(crate) trouble: RwSignal<Option<PortError>>,
    /// Seconds since `latest` came. 0 while the page is rendered: no clock is read before hydration.
    pub(crate) age: RwSignal<u32>,
    /// Off: nothing is asked until it is on again.
    pub(crate) following: RwSignal<bool>,
    arrived: StoredValue<Option<f64>>,
    asked: StoredValue<u64>,
    waiting: StoredValue<bool>,
    ask: StoredValue<Arc<dyn Fn() -> Answer<T> + Send + Sync>>,
}

impl<T: Send + Sync + 'static> Clone for Poll<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync + 'static> Copy for Poll<T> {}

impl<T: Send + Sync + 'static> Poll<T> {
    /// Starts asking once the page is hydrated. The first answer comes with the page: [`Self::seed`].
    pub(crate) fn new(ask: impl Fn() -> Answer<T> + Send + Sync + 'static) -> Self {
        let poll = Self {
            latest: RwSignal::new(None),
            trouble: RwSignal::new(None),
            age: RwSignal::new(0),
            following: RwSignal::new(true),
            arrived: StoredValue::new(None),
            asked: StoredValue::new(0),
            waiting: StoredValue::new(false),
            ask: StoredValue::new(Arc::new(ask)),
        };
        let ask_now = move || {
            if poll.following.get_untracked() && !poll.waiting.get_value() {
                poll.now();
            }
        };
        run(Arc::new(ask_now), Arc::new(move || poll.tick()));
        poll
    }

    /// Takes the answer that came with the page. A question still under way was about the page
    /// before, and is forgotten.
    pub(crate) fn seed(&self, answer: T) {
        self.asked.update_value(|n| *n += 1);
        self.waiting.set_value(false);
        self.arrived.set_value(None);
        self.age.set(0);
        self.trouble.set(None);
        self.latest.set(Some(answer));
    }

    /// Asks at once. An older question still under way is forgotten.
    pub(crate) fn now(&self) {
        let poll = *self;
        poll.asked.update_value(|n| *n += 1);
        poll.waiting.set_value(true);
        let number = poll.asked.get_value();
        let answer = poll.ask.with_value(|ask| ask());
        spawn_local(async move {
            let answer = answer.await;
            // The page may be gone, or have asked again meanwhile.
            if poll.asked.try_get_value() != Some(number) {
                return;
            }
            poll.waiting.set_value(false);
            match answer {
                Ok(answer) => {
                    poll.arrived.set_value(Some(js_sys::Date::now()));
                    poll.age.set(0);
                    poll.trouble.set(None);
                    poll.latest.set(Some(answer));
                }
                Err(error) => poll.trouble.set(Some(error)),
            }
        });
    }

    fn tick(&self) {
        let now = js_sys::Date::now();
        let arrived = self.arrived.get_value().unwrap_or(now);
        self.arrived.set_value(Some(arrived));
        // Casts saturate: a clock set back shows 0.
        self.age.set(((now - arrived) / 1_000.0) as u32);
    }
}

/// Runs the clocks of a poll while the page is looked at. Apart from [`Poll`], so that the bundle
/// holds it once, not once for each type of answer.
fn run(ask: Arc<dyn Fn() + Send + Sync>, tick: Arc<dyn Fn() + Send + Sync>) {
    let visibility = use_document_visibility();
    use_interval_fn(move || tick(), 1_000_u64);
    use_interval_fn(
        {
            let ask = ask.clone();
            move || {
                if visibility.get_untracked() == web_sys::VisibilityState::Visible {
                    ask();
                }
            }
        },
        EVERY_MS,
    );
    Effect::new(move |before: Option<web_sys::VisibilityState>| {
        let now = visibility.get();
        if now == web_sys::VisibilityState::Visible && before.is_some_and(|before| before != now) {
            ask();
        }
        now
    });
}
