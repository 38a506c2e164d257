//! What a caller is told when a request is not served: one status and one code a cause.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_engine::Class;
use forebay_engine::task::Stop;
use serde_json::{Value, json};

use crate::ledger::Refused;

/// Another node was first with the same Idempotency-Key; never told to a caller, who gets its answer.
pub(super) const DUPLICATE_KEY: &str = "duplicate_key";

/// The caller left; told to nobody.
pub(super) const CANCELLED: &str = "cancelled";

/// In whose shape an answer or an error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/api/*`.
    Forebay,
    /// `/v1/*`.
    OpenAi,
}

/// An error for a caller. Its message names no provider, account or upstream model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, task_id: None, retry_after: None }
    }

    /// A field that can't be what it is.
    pub(crate) fn invalid(field: &str, remedy: &str) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_request", format!("{field}: {remedy}"));
        Self { param: Some(field.to_owned()), ..error }
    }

    pub(crate) fn unsupported(feature: &str) -> Self {
        let message = format!("no model of this pool supports {feature}; leave it out or ask another pool");
        let error = Self::new(StatusCode::BAD_REQUEST, "unsupported", message);
        Self { param: Some(feature.to_owned()), ..error }
    }

    /// A field of the contract that nobody serves yet.
    pub(crate) fn not_served(field: &str) -> Self {
        let message = format!("{field}: is not served by this version; leave it out");
        let error = Self::new(StatusCode::BAD_REQUEST, "unsupported", message);
        Self { param: Some(field.to_owned()), ..error }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "a valid caller token is needed: Authorization: Bearer fb_… or x-api-key";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
    }

    pub(crate) fn idempotency_conflict() -> Self {
        let message = "this Idempotency-Key was used with another request; use a new one";
        Self::new(StatusCode::CONFLICT, "idempotency_conflict", message)
    }

    pub(crate) fn too_many_concurrent_tasks(limit: u32) -> Self {
        let message = format!(
            "{limit} tasks of this caller are unfinished, which is all its plan allows; wait for one"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_concurrent_tasks", message)
            .after(Some(Duration::from_secs(1)))
    }

    pub(crate) fn overloaded() -> Self {
        let message = "no more work is taken at the moment; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message).after(Some(Duration::from_secs(1)))
    }

    pub(crate) fn shutting_down() -> Self {
        let message = "this node is shutting down; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
            .after(Some(Duration::from_secs(1)))
    }

    pub(crate) fn internal() -> Self {
        let message = "something went wrong here; the request id helps the operators to find it";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn outcome_unknown() -> Self {
        let message = "the request may have been served, but its outcome is unknown; nothing is charged, \
                       and sending it again may do the work twice";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", message)
    }

    /// The caller left.
    pub(crate) fn cancelled() -> Self {
        Self::new(StatusCode::BAD_REQUEST, CANCELLED, "the caller left")
    }

    /// What was made could not be fetched or written down.
    pub(crate) fn result_lost() -> Self {
        let message = "the result was made but could not be fetched; nothing is charged, and sending the \
                       request again would make it again";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", message)
    }

    /// A stream that died after its first content.
    pub(crate) fn stream_died() -> Self {
        let message = "the answer broke off; what came before this is all there is, and nothing is charged";
        Self::new(StatusCode::BAD_GATEWAY, "upstream_failed", message)
    }

    /// Why the engine did not serve a task.
    pub(crate) fn of(stop: &Stop<Refused>) -> Self {
        let bad_request = StatusCode::BAD_REQUEST;
        let too_many = StatusCode::TOO_MANY_REQUESTS;
        match stop {
            Stop::NotFound => Self::not_found("the pool or model is not there any more"),
            Stop::Lacks(feature) => Self::unsupported(feature),
            Stop::Congested(after) => {
                Self::new(too_many, "congested", "every model of the pool is busy; try again")
                    .after(Some(*after))
            }
            Stop::RateLimited(after) => {
                let message = "every model of the pool is rate-limited; try again later";
                Self::new(too_many, "rate_limited", message).after(Some(*after))
            }
            Stop::NoAvailableModel { retry_after, .. } => {
                let message = "no model of the pool is available; nothing was sent";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_available_model", message).after(*retry_after)
            }
            Stop::UpstreamFailed(_) => {
                let message = "every allowed attempt failed; nothing is charged";
                Self::new(StatusCode::BAD_GATEWAY, "upstream_failed", message)
            }
            Stop::CallerAtFault(failure) if failure.class == Class::Policy => {
                let message = "the content was rejected by the model's content policy";
                Self::new(bad_request, "content_rejected", message)
            }
            Stop::CallerAtFault(failure) if failure.http_status == Some(413) => Self::new(
                bad_request,
                "invalid_request",
                "the request is too large for the model; shorten it",
            ),
            // Nobody upstream was asked: the words are ours.
            Stop::CallerAtFault(failure) if failure.http_status.is_none() => {
                let param = failure.param.as_deref().unwrap_or("input");
                Self::invalid(param, &failure.message)
            }
            Stop::CallerAtFault(failure) => {
                let message = match &failure.param {
                    Some(param) => format!("{param}: the model does not accept this value"),
                    None => "the model does not accept this request; check its parameters".to_owned(),
                };
                Self { param: failure.param.clone(), ..Self::new(bad_request, "invalid_request", message) }
            }
            Stop::OutcomeUnknown => Self::outcome_unknown(),
            Stop::DeadlineExceeded => {
                let message = "the deadline passed before the request could be sent; nothing is charged";
                Self::new(StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded", message)
            }
            Stop::Cancelled => Self::cancelled(),
            Stop::Refused(Refused::InsufficientCredits) => {
                let message = "the caller's credits do not cover this request's worst case; \
                               ask for less (max_tokens, n) or ask the operators for credits";
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_credits", message)
            }
            Stop::Refused(Refused::DuplicateKey { .. }) => Self::new(
                StatusCode::CONFLICT,
                DUPLICATE_KEY,
                "another node runs a request with this Idempotency-Key",
            ),
            Stop::Refused(Refused::Overloaded | Refused::Unavailable) => Self::overloaded(),
        }
    }

    #[must_use]
    pub(crate) fn after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    #[must_use]
    pub(crate) fn of_task(mut self, task_id: &str) -> Self {
        self.task_id = Some(task_id.to_owned());
        self
    }

    /// A retry by the caller's SDK would send again what must not be, or can't help.
    const fn forbids_retry(&self) -> bool {
        matches!(self.status, StatusCode::GATEWAY_TIMEOUT | StatusCode::CONFLICT)
    }

    /// The body, as each surface writes it.
    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        let mut error = match dialect {
            Dialect::Forebay => json!({"code": self.code, "message": self.message}),
            Dialect::OpenAi => {
                json!({"message": self.message, "type": self.openai_type(), "param": self.param, "code": self.code})
            }
        };
        if dialect == Dialect::Forebay
            && let Some(param) = &self.param
        {
            error["param"] = json!(param);
        }
        if let Some(task_id) = &self.task_id {
            error["task_id"] = json!(task_id);
        }
        if let Some(after) = self.retry_after {
            error["retry_after_ms"] = json!(millis(after));
        }
        json!({"error": error})
    }

    /// As the ledger keeps it.
    pub(crate) fn record(&self) -> String {
        self.body(Dialect::Forebay)["error"].to_string()
    }

    /// The response.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = (self.status, axum::Json(self.body(dialect))).into_response();
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1_000) as u64));
        }
        if self.forbids_retry() {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if let Some(id) = self.task_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert("x-request-id", id);
        }
        response
    }

    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            402 => "insufficient_quota",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_forbids_a_retry_and_a_full_pool_asks_for_one() {
        let unknown = ApiError::outcome_unknown().of_task("t-1").response(Dialect::OpenAi);
        assert_eq!(unknown.status(), 504);
        assert_eq!(unknown.headers()["x-should-retry"], "false");
        assert_eq!(unknown.headers()["x-request-id"], "t-1");

        let congested = ApiError::of(&Stop::Congested(Duration::from_millis(1_200)));
        let response = congested.response(Dialect::Forebay);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &HeaderValue::from(2))
        );
        assert_eq!(congested.body(Dialect::Forebay)["error"]["retry_after_ms"], 1_200);
        assert!(response.headers().get("x-should-retry").is_none());
    }
}
