//! POST /api/generate and /v1/chat/completions.

mod answers;
mod breaker;
mod capabilities;
mod databases;
mod input;
mod keys;
mod streams;
