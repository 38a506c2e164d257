//! GET /events: breakers, cooldowns and the ends of tasks as they happen, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::Stream;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::Admin;
use super::operator::Viewer;

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The stream; a listener that falls behind is told how many events it missed.
pub(super) async fn stream(
    _: Viewer,
    State(admin): State<Admin>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let told = futures::stream::unfold(admin.events.listen(), async |mut events| {
        let event = match events.recv().await {
            Ok(event) => Event::default().event(event.kind).data(event.data.to_string()),
            Err(RecvError::Lagged(missed)) => {
                Event::default().event("missed").data(json!({ "events": missed }).to_string())
            }
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), events))
    });
    Sse::new(told).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
