//! Streams: probed until their first content, then committed.
//!
//! Up to the first content the caller has seen nothing, so a failure goes to the next member. After
//! it the stream is the answer: a death is told, and nothing is ever glued on.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::outcome::{Class, Failure};
use crate::policy::PoolPolicy;

/// What may be held back before the first content, in bytes.
const PROBE_CAP: usize = 64 * 1024;

/// One step of an upstream's stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<E> {
    /// Text, reasoning, a refusal, a tool call, audio.
    Content(E),
    /// Anything else that is passed on: a role, a finish reason, usage. With its size in bytes.
    Other(E, usize),
    /// Bytes that are no event (yet): comments, pings, a part of an event.
    Quiet,
}

/// The events of an upstream's stream, already parsed and classified by their adapter.
pub trait EventSource: Send + 'static {
    /// One event, as it will be passed on.
    type Event: Send;

    /// The next step; `None` after a clean end. A cut is [`Class::Unknown`], a clean end before any
    /// content [`Class::BadAnswer`] is the caller's to find. A dropped future may lose a step: the
    /// engine drops one only to give the stream up.
    fn next(&mut self) -> impl Future<Output = Result<Option<Piece<Self::Event>>, Failure>> + Send;
}

/// A stream that has shown its first content, with what was held back until then.
pub struct Committed<S: EventSource> {
    source: S,
    held: VecDeque<S::Event>,
    clock: Arc<dyn Clock>,
    idle_timeout: Duration,
    content_timeout: Duration,
    /// How long content has been waited for, counting only while the caller was reading.
    without_content: Duration,
}

impl<S: EventSource> std::fmt::Debug for Committed<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committed").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

/// Reads up to the first content.
///
/// The caller bounds the time. Errors are the source's own, or [`Class::BadAnswer`] for a stream that
/// ends, or fills the buffer, without content.
pub(crate) async fn probe<S: EventSource>(
    mut source: S,
    policy: &PoolPolicy,
    clock: Arc<dyn Clock>,
) -> Result<Committed<S>, Failure> {
    let mut held = VecDeque::new();
    let mut size = 0;
    loop {
        match source.next().await? {
            Some(Piece::Quiet) => {}
            Some(Piece::Other(event, bytes)) => {
                size += bytes;
                if size > PROBE_CAP {
                    return Err(Failure::new(Class::BadAnswer, "64 KiB of events without any content"));
                }
                held.push_back(event);
            }
            Some(Piece::Content(event)) => {
                held.push_back(event);
                return Ok(Committed {
                    source,
                    held,
                    clock,
                    idle_timeout: policy.idle_timeout,
                    content_timeout: policy.content_timeout,
                    without_content: Duration::ZERO,
                });
            }
            None => {
                return Err(Failure::new(Class::BadAnswer, "the stream ended before any content"));
            }
        }
    }
}

impl<S: EventSource> Committed<S> {
    /// The next event to pass on; `None` after a clean end.
    ///
    /// Both clocks run only in here, that is while the caller is reading. [`Class::Unknown`] for a
    /// cut or a silence; nothing follows an error.
    pub async fn next(&mut self) -> Result<Option<S::Event>, Failure> {
        if let Some(event) = self.held.pop_front() {
            return Ok(Some(event));
        }
        loop {
            let began = self.clock.now();
            let content_left = self.content_timeout.saturating_sub(self.without_content);
            let limit = began + self.idle_timeout.min(content_left);
            let piece = {
                let clock = self.clock.clone();
                tokio::select! {
                    biased;
                    piece = self.source.next() => piece?,
                    () = clock.sleep_until(limit) => return Err(self.silence(began)),
                }
            };
            self.without_content += self.clock.now().since(began);
            match piece {
                None => return Ok(None),
                Some(Piece::Quiet) => {}
                Some(Piece::Other(event, _)) => return Ok(Some(event)),
                Some(Piece::Content(event)) => {
                    self.without_content = Duration::ZERO;
                    return Ok(Some(event));
                }
            }
        }
    }

    /// What the adapter still knows of the stream, after its end.
    pub const fn source(&self) -> &S {
        &self.source
    }

    fn silence(&self, began: Moment) -> Failure {
        let waited = self.clock.now().since(began);
        let message = if waited >= self.idle_timeout {
            format!("no byte for {} s", waited.as_secs())
        } else {
            format!("no content for {} s", self.content_timeout.as_secs())
        };
        Failure::new(Class::Unknown, message)
    }
}
