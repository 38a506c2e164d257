//! Time as the engine knows it: a port, so that tests can pause it or move it.

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::time::Instant;

/// A point in time: microseconds since the Unix epoch, never running backwards within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other moment: "until an operator says otherwise".
    pub const NEVER: Self = Self(u64::MAX);

    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// How long until `later`; zero when that is past.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }

    /// How long since `earlier`; zero when that is still to come.
    pub const fn since(self, earlier: Self) -> Duration {
        earlier.until(self)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

/// A sleep that a [`Clock`] hands out.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The port for time.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Moment;

    /// Resolves once `at` is reached.
    fn sleep_until(&self, at: Moment) -> Sleep<'_>;
}

/// The clock of a running server: the wall clock as it stood at the start, carried on by the
/// monotonic one, so that a jump of the wall clock moves no deadline. It obeys tokio's paused time,
/// and [`TokioClock::advance`] moves it where sockets keep time from being paused.
#[derive(Debug)]
pub struct TokioClock {
    epoch: Moment,
    started: Instant,
    ahead_micros: AtomicU64,
    moved: Notify,
}

impl TokioClock {
    /// Starts at the wall clock's time.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else asks")]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(Moment::default() + wall)
    }

    /// Starts at `epoch`.
    pub fn starting_at(epoch: Moment) -> Self {
        Self { epoch, started: Instant::now(), ahead_micros: AtomicU64::new(0), moved: Notify::new() }
    }

    /// Moves the clock ahead; sleeps whose time has come end at once.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.ahead_micros.fetch_add(micros, Ordering::AcqRel);
        self.moved.notify_waiters();
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        self.epoch + self.started.elapsed() + Duration::from_micros(self.ahead_micros.load(Ordering::Acquire))
    }

    fn sleep_until(&self, at: Moment) -> Sleep<'_> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                let left = self.now().until(at);
                if left.is_zero() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = moved => {}
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn advancing_ends_a_sleep_whose_time_has_come() {
        let clock = std::sync::Arc::new(TokioClock::starting_at(Moment::from_millis(1_000)));
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move {
                clock.sleep_until(Moment::from_millis(61_000)).await;
                clock.now()
            }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(60));
        assert!(sleeper.await.expect("the sleeper ends") >= Moment::from_millis(61_000));
    }
}
