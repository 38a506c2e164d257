//! Operators: found by token, by name, or by name and password.

use super::password;
use super::tokens::{self, Role};
use crate::store::operators::OperatorRow;
use crate::store::{Store, StoreError};

/// An operator who may sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The name used at login.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// Those who may use the console and the admin API.
#[derive(Clone, Debug)]
pub struct Operators {
    store: Store,
}

impl Operators {
    /// Those of the table `admin_users`.
    pub const fn new(store: Store) -> Self {
        Self { store }
    }

    /// The operator whose `fba_…` token this is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn of_token(&self, token: &str) -> Result<Option<Operator>, StoreError> {
        if !token.starts_with(tokens::OPERATOR) {
            return Ok(None);
        }
        let row = self.store.operator_by_token(&tokens::hex(&tokens::hash(token))).await?;
        Ok(row.as_ref().and_then(enabled))
    }

    /// The operator of that name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn named(&self, name: &str) -> Result<Option<Operator>, StoreError> {
        Ok(self.store.operator(name).await?.as_ref().and_then(enabled))
    }

    /// The operator of that name and password. A wrong name takes as long as a wrong password.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn with_password(&self, name: &str, password: &str) -> Result<Option<Operator>, StoreError> {
        let row = self.store.operator(name).await?;
        let known = row.as_ref().and_then(enabled);
        let hash = row.and_then(|row| row.password_hash).filter(|_| known.is_some());
        let right = password::is_right(password.to_owned(), hash).await;
        Ok(known.filter(|_| right))
    }

    /// Ends every session of an operator.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_sessions(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete_sessions_of(name).await
    }
}

/// A role that is no word of ours may look, and nothing else.
fn enabled(row: &OperatorRow) -> Option<Operator> {
    let role = row.role.parse().unwrap_or(Role::Viewer);
    row.is_enabled.then(|| Operator { name: row.name.clone(), role })
}
