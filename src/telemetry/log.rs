//! Logs: to standard error, one line an event, filtered by RUST_LOG.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// What is logged without RUST_LOG.
const DEFAULT_FILTER: &str = "info,sqlx=warn,hyper=warn,leptos=warn";

/// Starts logging for the process: readable on a terminal, JSON elsewhere when `json` says so.
pub fn start_logging(json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
    // A second start, in a test, changes nothing.
    let _ = if json {
        subscriber.json().try_init()
    } else {
        subscriber.with_ansi(stderr().is_terminal()).try_init()
    };
}
