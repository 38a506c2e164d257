//! `/admin/login`, and who is signed in.

pub mod api;
pub(crate) mod page;
#[cfg(feature = "ssr")]
pub mod port;
