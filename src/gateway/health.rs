//! GET /healthz and GET /readyz.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Gateway;
use crate::exchange::ModelUpstream;

/// The process is alive.
pub(super) async fn alive() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// The store is reachable, the configuration is loaded, and new work is taken.
pub(super) async fn ready<U: ModelUpstream>(State(gateway): State<Gateway<U>>) -> Response {
    let store = gateway.ledger.is_reachable().await;
    let draining = gateway.is_draining();
    let status = if store && !draining { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if status == StatusCode::OK { "ready" } else { "not ready" },
        "store": if store { "ok" } else { "unreachable" },
        "draining": draining,
        "configuration_version": gateway.catalog.snapshot().version,
    });
    (status, Json(body)).into_response()
}
