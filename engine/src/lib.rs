//! The routing engine of Forebay.
//!
//! Behind one logical model (a *pool*) stand physical models (*members*) and shared upstream
//! *accounts*. The engine picks one ([`select`]), protects it ([`breaker`], [`limits`], [`cooldown`]),
//! retries and fails over within a budget ([`route`]), and never sends again what may already have
//! been done ([`outcome`]). It knows the world only through ports: [`Clock`], [`Random`],
//! [`Upstream`], [`Journal`], [`Directory`], [`State`] and [`Observer`].

pub mod account;
pub mod attempt;
pub mod breaker;
mod call;
pub mod clock;
pub mod cooldown;
pub mod costs;
mod day;
pub mod events;
pub mod features;
pub mod latency;
pub mod limits;
pub mod live;
pub mod member;
pub mod outcome;
pub mod permit;
pub mod policy;
pub mod pool;
mod queue;
pub mod random;
mod retry;
pub mod route;
pub mod select;
pub mod shortage;
mod strategy;
pub mod stream;
mod sync;
pub mod task;
pub mod upstream;
mod weights;
pub mod window;

pub use account::{Account, AccountId};
pub use breaker::{Breaker, BreakerState, Verdict};
pub use clock::{Clock, Moment};
pub use costs::Costs;
pub use events::Observer;
pub use features::{Features, Needs};
pub use member::{Binding, Member, ModelId, ModelState};
pub use outcome::{Class, Failure, Usage};
pub use policy::{Capability, GroupKey, Priority, Weight};
pub use pool::{Directory, LocalState, Pool, State};
pub use random::Random;
pub use route::Engine;
pub use upstream::{Journal, Upstream};
