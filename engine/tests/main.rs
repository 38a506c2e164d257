//! The engine under paused time, with a scripted upstream and seeds.

mod breaker;
mod choice;
mod cooldowns;
mod features;
mod limits;
mod queue;
mod recovery;
mod retry_order;
mod select;
mod streams;
mod support;
mod unknown;
