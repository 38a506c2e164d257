//! A request's body that tells whether any of it was read, and so may have left.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_engine::upstream::Sent;
use http_body::{Body, Frame, SizeHint};

/// Sent once: it can't be cloned, and so nothing below us can replay it.
#[derive(Debug)]
pub(super) struct OnceBody {
    bytes: Option<Bytes>,
    sent: Sent,
}

impl OnceBody {
    /// Sets `sent` when it is first read.
    pub(super) const fn new(bytes: Bytes, sent: Sent) -> Self {
        Self { bytes: Some(bytes), sent }
    }
}

impl Body for OnceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.set();
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
