//! `/admin/api-accounts`.

pub mod api;
pub(crate) mod page;
mod panel;
#[cfg(feature = "ssr")]
pub mod port;
