//! POST /api/generate and POST /v1/chat/completions.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value};

use super::error::{ApiError, DUPLICATE_KEY, Dialect};
use super::keys::{Entry, KeyGuard};
use super::request::{self, Asked};
use super::run::Begin;
use super::{CallerSlot, Gateway, stream};
use crate::catalog::{Caller, Snapshot};
use crate::exchange::ChatUpstream;

/// A request's body must have arrived within this.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Reads a body of one of the endpoints.
type Read = fn(Map<String, Value>, &HeaderMap, &Snapshot, &Caller) -> Result<Asked, ApiError>;

/// POST /api/generate.
pub(super) async fn generate<U: ChatUpstream>(
    State(gateway): State<Gateway<U>>,
    request: Request,
) -> Response {
    let served = gateway.serve(request, request::read_generate).await;
    served.unwrap_or_else(|error| error.response(Dialect::Forebay))
}

/// POST /v1/chat/completions.
pub(super) async fn chat_completions<U: ChatUpstream>(
    State(gateway): State<Gateway<U>>,
    request: Request,
) -> Response {
    let served = gateway.serve(request, request::read_chat).await;
    served.unwrap_or_else(|error| error.response(Dialect::OpenAi))
}

impl<U: ChatUpstream> Gateway<U> {
    async fn serve(&self, request: Request, read: Read) -> Result<Response, ApiError> {
        if self.is_draining() {
            return Err(ApiError::shutting_down());
        }
        let (head, body) = request.into_parts();
        let (caller, snapshot) = self.caller(&head.headers)?;
        let body = read_body(body, snapshot.settings.body_limit).await?;
        let asked = read(body, &head.headers, &snapshot, &caller)?;
        drop(snapshot);
        let Some((key, hash)) = asked.idempotency.clone() else {
            return self.serve_once(caller, asked, None).await.map_err(|error| (*error).clone());
        };
        loop {
            let guard = match self.keys.enter(&self.ledger, &caller.id, &key, &hash).await? {
                Entry::Mine(guard) => guard,
                Entry::Finished(Ok(answer)) if asked.stream => {
                    return Ok(stream::replay(&answer, asked.dialect, asked.include_usage));
                }
                Entry::Finished(Ok(answer)) => return Ok(answer.response(asked.dialect)),
                Entry::Finished(Err(error)) => return Err((*error).clone()),
            };
            match self.serve_once(caller.clone(), asked.clone(), Some(guard)).await {
                Ok(response) => return Ok(response),
                // Another node was first with this key: its answer is the answer.
                Err(error) if error.code == DUPLICATE_KEY => {}
                Err(error) => return Err((*error).clone()),
            }
        }
    }

    async fn serve_once(
        &self,
        caller: Arc<Caller>,
        asked: Asked,
        key: Option<KeyGuard>,
    ) -> Result<Response, Arc<ApiError>> {
        let slot = CallerSlot::take(&caller)?;
        let (dialect, stream) = (asked.dialect, asked.stream);
        let begin = Begin { caller, slot, key, asked };
        if stream {
            self.streamed(begin).await.map(stream::StreamStart::response)
        } else {
            self.whole(begin).await.map(|answer| answer.response(dialect))
        }
    }
}

async fn read_body(body: Body, limit: usize) -> Result<Map<String, Value>, ApiError> {
    // What is announced as too large need not be sent.
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, limit)).await;
    let read = read.map_err(|_| {
        let message = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request", message)
    })?;
    let bytes = read.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large { ApiError::too_large(limit) } else { ApiError::invalid("body", "ended too soon") }
    })?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(ApiError::invalid("body", "must be a JSON object")),
        Err(error) => Err(ApiError::invalid("body", &format!("is not JSON: {error}"))),
    }
}
