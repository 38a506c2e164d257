//! POST /api/generate and /v1/chat/completions.

mod answers;
mod breaker;
mod capabilities;
mod databases;
mod failures;
mod input;
mod keys;
mod load;
mod routing;
mod streams;
