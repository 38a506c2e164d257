//! What happens, as it happens, for whoever listens now: breakers, cooldowns, the ends of tasks.

use serde_json::Value;
use tokio::sync::broadcast;

/// Events that a slow listener may fall behind by before it misses some.
const BACKLOG: usize = 1_024;

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// `breaker`, `cooldown`, `task`.
    pub kind: &'static str,
    /// What there is to say of it.
    pub data: Value,
}

/// Where things that happen are told; clones share it.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Events {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }

    /// Tells whoever listens. `data` is made only for listeners.
    pub fn tell(&self, kind: &'static str, data: impl FnOnce() -> Value) {
        if self.0.receiver_count() > 0 {
            // The last listener may leave at this moment.
            let _ = self.0.send(Event { kind, data: data() });
        }
    }

    /// Everything from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}
