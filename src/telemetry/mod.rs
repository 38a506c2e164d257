//! What the world sees of the inside: metrics and logs.

mod log;
mod metrics;
mod observer;

pub use self::log::start_logging;
pub use self::metrics::{Metrics, metrics_routes};
pub use self::observer::Telemetry;
