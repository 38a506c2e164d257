//! The built site: its files, and what they are called in this build.

use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use forebay_app::frame::Assets;
use http::{HeaderValue, header};
use tower_http::services::{ServeDir, ServeFile};

/// Names in `pkg/` carry a hash of their content, so that they can be kept for good.
const KEEP: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const KEEP_A_DAY: HeaderValue = HeaderValue::from_static("public, max-age=86400");

/// The names of this build, from `pkg/hash.txt` (lines like `wasm: 1a2b3c`).
pub(super) fn read(site_root: &Path) -> Assets {
    let list = site_root.join("pkg/hash.txt");
    let hashes = std::fs::read_to_string(&list).unwrap_or_else(|error| {
        tracing::warn!(
            file = %list.display(), %error,
            "the console has no style and no script: run `cargo xtask build`, or set FOREBAY_SITE_ROOT"
        );
        String::new()
    });
    let name = |kind: &str| match hash_of(&hashes, kind) {
        Some(hash) => format!("/pkg/forebay.{hash}.{kind}"),
        None => format!("/pkg/forebay.{kind}"),
    };
    Assets { css: name("css"), js: name("js"), wasm: name("wasm") }
}

fn hash_of<'a>(hashes: &'a str, kind: &str) -> Option<&'a str> {
    hashes
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(k, _)| *k == kind)
        .map(|(_, hash)| hash.trim())
}

/// The files: precompressed where the browser takes it.
pub(super) fn routes(site_root: &Path) -> Router {
    let pkg = ServeDir::new(site_root.join("pkg")).precompressed_br().precompressed_gzip();
    let pkg = Router::new()
        .nest_service("/pkg", pkg)
        .layer(from_fn(|request: Request, next: Next| async { cached(next.run(request).await, KEEP) }));
    ["favicon.ico", "favicon.svg"]
        .into_iter()
        .fold(Router::new(), |files, name| {
            files.route_service(&format!("/{name}"), ServeFile::new(site_root.join(name)))
        })
        .layer(from_fn(|request: Request, next: Next| async { cached(next.run(request).await, KEEP_A_DAY) }))
        .merge(pkg)
}

fn cached(mut response: Response, how_long: HeaderValue) -> Response {
    if response.status().is_success() {
        response.headers_mut().insert(header::CACHE_CONTROL, how_long);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_hashes_of_the_build() {
        let hashes = "css: 0a\njs: 0b\nwasm: 0c\n";
        assert_eq!(hash_of(hashes, "wasm"), Some("0c"));
        assert_eq!(hash_of(hashes, "map"), None);
    }

    #[test]
    fn a_site_that_is_not_built_has_plain_names() {
        let assets = read(Path::new("/nowhere"));
        assert_eq!(assets.css, "/pkg/forebay.css");
    }
}
