//! GET /api/openapi.json: the public API as a document, written by hand and held to the server by
//! end2end/contract.py.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

const DOCUMENT: &str = include_str!("openapi.yaml");

/// The document, in JSON.
pub(super) async fn show() -> Response {
    static JSON: OnceLock<Bytes> = OnceLock::new();
    let json = JSON.get_or_init(|| {
        // A test holds that it can be read.
        let document: Value = serde_yaml_ng::from_str(DOCUMENT).unwrap_or_default();
        document.to_string().into()
    });
    ([(header::CONTENT_TYPE, "application/json")], json.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_can_be_read_and_names_every_endpoint_that_generates() {
        let document: Value = serde_yaml_ng::from_str(DOCUMENT).expect("it is YAML");
        for (path, _) in super::super::generate::ENDPOINTS {
            assert!(document["paths"][path]["post"].is_object(), "{path}");
        }
        assert!(document["paths"]["/api/generate"]["post"].is_object());
    }
}
