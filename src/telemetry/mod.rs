//! What the world sees of the inside: metrics and logs.

mod log;
mod metrics;
mod news;
mod observer;

pub use self::log::start_logging;
pub use self::metrics::{Metrics, Scraped, metrics_routes};
pub use self::news::News;
pub use self::observer::Telemetry;
