//! What the admin API answers when it can't do what it was asked, and what the console is told then.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_app::port::PortError;
use forebay_wire::import::Problem;
use serde_json::json;

use crate::catalog::CatalogError;
use crate::ledger::StoreError;

/// An error of the admin API. No variant holds a key, a token or a password.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody is signed in, or the token is none.
    #[error("send Authorization: Bearer fba_… or sign in to the console")]
    Unauthorized,
    /// A viewer may not do this, or a page of another origin asks.
    #[error("{0}")]
    Forbidden(&'static str),
    /// Fields that can't be taken.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
    /// There is no such thing.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The path exists, but not with this method.
    #[error("this path has no such method")]
    MethodNotAllowed,
    /// The body is larger than this, in bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// It contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// The database failed.
    #[error("the database can't answer now: {0}")]
    Unavailable(String),
}

impl AdminError {
    pub(super) fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound(what.into())
    }

    pub(super) const fn method_not_allowed() -> Self {
        Self::MethodNotAllowed
    }

    /// One field that can't be taken.
    pub(super) fn invalid(field: &str, remedy: impl Into<String>) -> Self {
        Self::Invalid(vec![Problem::new("", field, remedy)])
    }

    /// A query string that can't be read.
    pub(super) fn query(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        Self::unreadable(text)
    }

    /// serde names the field as `field: why`, or between back quotes.
    pub(super) fn unreadable(text: &str) -> Self {
        let before = text.split_once(": ").filter(|(field, _)| is_name(field));
        let quoted = || text.split('`').nth(1).filter(|field| is_name(field)).map(|field| (field, text));
        match before.or_else(quoted) {
            Some((field, why)) => Self::invalid(field, why),
            None => Self::invalid("", text),
        }
    }

    /// How many rows a page of a list has: 1 to 500, or what is usual there.
    pub(super) fn page_limit(given: Option<u32>, usual: u32) -> Result<u32, Self> {
        match given {
            None => Ok(usual),
            Some(limit @ 1..=500) => Ok(limit),
            Some(_) => Err(Self::invalid("limit", "must be a whole number between 1 and 500")),
        }
    }

    const fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "invalid_request"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        if let Self::Unavailable(error) = &self {
            tracing::error!(%error, "the admin API failed");
        }
        let mut error = json!({ "code": code, "message": self.to_string() });
        if let Self::Invalid(problems) = &self {
            error["fields"] = problems
                .iter()
                .map(|problem| json!({ "row": problem.row, "field": problem.field, "message": problem.remedy }))
                .collect();
        }
        (status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Exists(what) => Self::Conflict(format!("{what} exists already")),
            StoreError::Cursor => Self::invalid("cursor", "must be the next_cursor of a page"),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<CatalogError> for AdminError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Invalid(problems) => Self::Invalid(problems),
            CatalogError::InUse { .. } => Self::Conflict(error.to_string()),
            CatalogError::Missing(what) => Self::NotFound(what),
            CatalogError::Store(error) => error.into(),
        }
    }
}

impl From<AdminError> for PortError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Unauthorized => Self::Unauthorized,
            AdminError::Forbidden(_) => Self::Forbidden,
            AdminError::Invalid(mut problems) if problems.len() == 1 => {
                let problem = problems.remove(0);
                Self::invalid(problem.field, problem.remedy)
            }
            AdminError::Invalid(_) | AdminError::Conflict(_) => Self::conflict(error.to_string()),
            AdminError::NotFound(what) => Self::not_found(what),
            AdminError::MethodNotAllowed | AdminError::TooLarge(_) | AdminError::Unavailable(_) => {
                tracing::error!(%error, "the console's port failed");
                Self::unavailable(error.to_string())
            }
        }
    }
}
