//! What the world sees of the inside: metrics and logs.

mod events;
mod log;
mod metrics;
mod observer;

pub use self::events::Events;
pub use self::log::start_logging;
pub use self::metrics::{Metrics, Scraped, metrics_routes};
pub use self::observer::Telemetry;
