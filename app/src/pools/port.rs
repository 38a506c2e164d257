//! The port behind `/admin/model-pools`.

use super::api::{LiveView, MemberEdit, MockPick, PoolCard, PoolDetail, PoolEdit};
use crate::port::PortFuture;
use crate::session::api::Operator;

/// Pools, their members and their breakers. Reads change nothing. Writes name the operator, for
/// the audit log, and are live when they return.
pub trait PoolsPort: Send + Sync + 'static {
    /// Every pool, by key, inactive ones too.
    fn list(&self) -> PortFuture<'_, Vec<PoolCard>>;

    /// Everything that moves, in one small answer: the sums of every pool, and the members of the
    /// pools named in `members_of`. Unknown keys are ignored. One query at most.
    fn live<'a>(&'a self, members_of: &'a [String]) -> PortFuture<'a, LiveView>;

    /// One pool with its settings and members (by priority, then name).
    fn pool<'a>(&'a self, key: &'a str) -> PortFuture<'a, PoolDetail>;

    /// Replaces the settings of a pool. Breakers that exist take the new values at once and keep
    /// their state.
    fn edit<'a>(&'a self, by: &'a Operator, key: &'a str, edit: &'a PoolEdit) -> PortFuture<'a, ()>;

    /// Closes the breaker of a model and sets its count to 0.
    fn reset_breaker<'a>(&'a self, by: &'a Operator, model: &'a str) -> PortFuture<'a, ()>;

    /// Closes the breakers of all members of a pool; returns how many were not Closed.
    fn reset_all<'a>(&'a self, by: &'a Operator, key: &'a str) -> PortFuture<'a, u32>;

    /// Opens the breaker of a model for that many seconds.
    fn force_open<'a>(&'a self, by: &'a Operator, model: &'a str, seconds: u32) -> PortFuture<'a, ()>;

    /// Changes how a member takes part in its pool. Taking it out of rotation is `is_active: false`.
    fn set_member<'a>(&'a self, by: &'a Operator, model: &'a str, edit: MemberEdit) -> PortFuture<'a, ()>;

    /// Picks `n` (1 to 10,000) times as things stand now and calls nobody.
    fn mock_pick<'a>(&'a self, key: &'a str, n: u32) -> PortFuture<'a, MockPick>;
}
