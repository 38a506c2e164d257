//! The engine under paused time, with a scripted upstream and seeds.

mod breaker;
mod route;
mod select;
mod support;
