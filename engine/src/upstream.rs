//! The ports through which attempts leave and are recorded.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::account::Account;
use crate::attempt::{AttemptEnded, AttemptSent};
use crate::member::Member;
use crate::outcome::{Failure, Usage};
use crate::stream::EventSource;

/// The port for upstreams.
pub trait Upstream: Send + Sync + 'static {
    /// What is asked, in the adapter's own terms.
    type Request: Send + Sync;
    /// A whole answer.
    type Answer: Send;
    /// A streamed answer.
    type Stream: EventSource;

    /// Asks for a whole answer. The adapter sets [`Order::sent`] as the request's body is first read.
    fn whole(
        &self,
        order: Order<'_, Self::Request>,
    ) -> impl Future<Output = Result<Whole<Self::Answer>, Failure>> + Send;

    /// Asks for a stream; returns at the headers of a 200.
    fn stream(
        &self,
        order: Order<'_, Self::Request>,
    ) -> impl Future<Output = Result<Self::Stream, Failure>> + Send;
}

/// One call to an upstream.
#[derive(Debug)]
pub struct Order<'a, R> {
    /// What is asked.
    pub request: &'a R,
    /// Whom.
    pub member: &'a Member,
    /// With which account.
    pub account: Option<&'a Account>,
    /// Set by the adapter once the request may have left.
    pub sent: &'a Sent,
}

/// Whether any of a request may have reached the upstream.
#[derive(Clone, Debug, Default)]
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    /// From now on it may have.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it may have.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A whole answer and what its adapter learned from it.
#[derive(Debug)]
pub struct Whole<A> {
    /// The answer.
    pub answer: A,
    /// What it consumed.
    pub usage: Option<Usage>,
    /// The provider's own id for it.
    pub provider_task_id: Option<String>,
}

/// The port for the record of attempts: written before the call, durable when it returns.
pub trait Journal: Send + Sync {
    /// Why an attempt may not be made.
    type Refusal: Send;

    /// Records the end of the attempt before, where there was one, and that `next` is about to be sent.
    fn sent(
        &self,
        before: Option<AttemptEnded>,
        next: AttemptSent,
    ) -> impl Future<Output = Result<(), Self::Refusal>> + Send;
}
