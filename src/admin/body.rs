//! A JSON body of the admin API: an object, read within the limit, with what is wrong named.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::BODY_LIMIT;
use super::error::AdminError;

/// A body that has to be there.
pub(super) struct Body<T>(pub(super) T);

/// A body that may be left out.
pub(super) struct OptionalBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = AdminError;

    async fn from_request(request: Request, state: &S) -> Result<Self, AdminError> {
        let bytes = Bytes::from_request(request, state).await.map_err(AdminError::bytes)?;
        read(&bytes).map(Self)
    }
}

impl<S: Send + Sync, T: Default + DeserializeOwned> FromRequest<S> for OptionalBody<T> {
    type Rejection = AdminError;

    async fn from_request(request: Request, state: &S) -> Result<Self, AdminError> {
        let bytes = Bytes::from_request(request, state).await.map_err(AdminError::bytes)?;
        if bytes.trim_ascii().is_empty() { Ok(Self(T::default())) } else { read(&bytes).map(Self) }
    }
}

/// serde would take a list for the fields of a struct, in their order: nobody means that.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AdminError> {
    let body: Value = serde_json::from_slice(bytes)
        .map_err(|error| AdminError::invalid("", format!("the body is not JSON: {error}")))?;
    if !body.is_object() {
        return Err(AdminError::invalid("", "the body must be a JSON object"));
    }
    serde_json::from_value(body).map_err(|error| AdminError::unreadable(&error.to_string()))
}

impl AdminError {
    /// A body that did not come whole.
    pub(super) fn bytes(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            return Self::TooLarge(BODY_LIMIT);
        }
        Self::invalid("", "the body ended too soon")
    }
}
