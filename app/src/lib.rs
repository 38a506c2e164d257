//! The operators' console: pages, their data and their server functions.
//!
//! Compiled twice: with `ssr` into the server, which renders every page and runs the server
//! functions, and with `hydrate` into the bundle that brings the pages to life. Each page has a
//! folder: `page.rs` (components), `api.rs` (what crosses the wire, and the `#[server]` functions)
//! and `port.rs` (server only: the trait that the server half implements).

#![recursion_limit = "512"]
#![expect(
    unreachable_pub,
    reason = "the component macro makes a public type of the props of every component"
)]

// The page that the server renders and the bundle that takes it over must be built alike.
#[cfg(not(erase_components))]
compile_error!("RUSTFLAGS hides .cargo/config.toml: add `--cfg erase_components` to it");

pub mod accounts;
mod app;
pub mod frame;
pub mod pools;
pub mod port;
pub mod secret;
pub mod session;
pub mod tasks;
mod ui;

pub use app::App;
pub use ui::text::Language;
