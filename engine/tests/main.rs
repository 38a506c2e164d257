//! The engine under paused time, with a scripted upstream and seeds.

mod breaker;
mod choice;
mod classes;
mod cooldowns;
mod features;
mod limits;
mod model_mode;
mod queue;
mod recovery;
mod retry_order;
mod scenarios;
mod select;
mod streams;
mod support;
mod unknown;
mod weights;
