//! The port behind `/admin/api-accounts`.

use super::api::{AccountChoices, AccountEdit, AccountLive, AccountNew, AccountRow};
use crate::port::PortFuture;
use crate::secret::Secret;
use crate::session::api::Operator;

/// Accounts and their bindings. A key goes in and never comes out: reads carry its last four
/// characters at most. Writes name the operator, for the audit log, and are live when they return.
pub trait AccountsPort: Send + Sync + 'static {
    /// Every account, by label.
    fn list(&self) -> PortFuture<'_, Vec<AccountRow>>;

    /// What moves about every account, in one small answer.
    fn live(&self) -> PortFuture<'_, AccountLive>;

    /// What the forms offer to choose from.
    fn choices(&self) -> PortFuture<'_, AccountChoices>;

    /// Adds an account. A label that exists is a `Conflict`.
    fn add<'a>(&'a self, by: &'a Operator, account: &'a AccountNew) -> PortFuture<'a, ()>;

    /// Changes an account; its key stays.
    fn edit<'a>(&'a self, by: &'a Operator, label: &'a str, edit: &'a AccountEdit) -> PortFuture<'a, ()>;

    /// Replaces the key, clears the cooldown and its doubling.
    fn replace_key<'a>(&'a self, by: &'a Operator, label: &'a str, key: &'a Secret) -> PortFuture<'a, ()>;

    /// Binds the account to a model, or changes the priority of a binding that exists.
    fn bind<'a>(
        &'a self,
        by: &'a Operator,
        model: &'a str,
        account: &'a str,
        priority: i64,
    ) -> PortFuture<'a, ()>;

    /// Takes a binding away. None there is `NotFound`.
    fn unbind<'a>(&'a self, by: &'a Operator, model: &'a str, account: &'a str) -> PortFuture<'a, ()>;

    /// Ends every cooldown of the account, for all models.
    fn clear_cooldown<'a>(&'a self, by: &'a Operator, label: &'a str) -> PortFuture<'a, ()>;
}
