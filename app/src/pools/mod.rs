//! `/admin/model-pools`.

pub mod api;
mod card;
mod dry_run;
mod members;
pub(crate) mod page;
#[cfg(feature = "ssr")]
pub mod port;
mod settings;
