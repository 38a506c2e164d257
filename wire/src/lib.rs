//! What upstreams and files say, parsed: server-sent events, error dialects, Retry-After, usage,
//! the answers of each capability, the import file. No I/O, and light, so that it fuzzes fast.

pub mod accumulate;
pub mod audio;
pub mod chat;
pub mod classify;
pub mod content;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod import;
pub mod responses;
pub mod retry_after;
pub mod sse;
pub mod usage;
