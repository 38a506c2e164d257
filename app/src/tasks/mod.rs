//! `/admin/tasks`.

pub mod api;
mod chain;
pub(crate) mod detail;
pub(crate) mod page;
#[cfg(feature = "ssr")]
pub mod port;
