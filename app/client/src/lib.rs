//! The console in the browser: what the page's script calls once the bundle is there.

use wasm_bindgen::prelude::wasm_bindgen;

/// Brings the page that the server rendered to life.
#[wasm_bindgen]
pub fn hydrate() {
    leptos::mount::hydrate_body(forebay_app::App);
}
