//! GET /v1/models: what a caller may ask for.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Gateway;
use super::error::Dialect;
use crate::exchange::ModelUpstream;

/// The pools that the caller may use, by the name that it would ask for.
pub(super) async fn list<U: ModelUpstream>(
    State(gateway): State<Gateway<U>>,
    headers: HeaderMap,
) -> Response {
    let (caller, snapshot) = match gateway.caller(&headers) {
        Ok(found) => found,
        Err(error) => return error.response(Dialect::OpenAi),
    };
    let mut pools: Vec<_> = snapshot.pool_configs().filter(|pool| caller.may_use(&pool.key)).collect();
    pools.sort_by(|a, b| a.key.cmp(&b.key));
    let data: Vec<Value> = pools
        .into_iter()
        .map(|pool| {
            let id = pool.public_alias.as_deref().unwrap_or(pool.key.as_str());
            json!({"id": id, "object": "model", "created": pool.created_at / 1_000, "owned_by": "forebay"})
        })
        .collect();
    Json(json!({"object": "list", "data": data})).into_response()
}
