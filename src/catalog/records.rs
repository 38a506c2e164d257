//! Callers' tokens, and the audit log.

use std::collections::HashMap;

use forebay_wire::import::Section;
use serde_json::json;

use super::{Author, Catalog, CatalogError};
use crate::auth::tokens::{self, NewToken};
use crate::store::audit::AuditEntry;
use crate::store::callers::TokenView;

impl Catalog {
    /// The id of the caller of that name.
    ///
    /// # Errors
    /// `Missing`.
    pub fn caller_id(&self, name: &str) -> Result<String, CatalogError> {
        let snapshot = self.snapshot();
        let row = snapshot.rows.find(Section::Callers, name);
        row.map(|row| row.id.clone()).ok_or_else(|| CatalogError::Missing(format!("caller {name}")))
    }

    /// A new token for a caller, live when this returns. `expires_at` in milliseconds UTC; 0 = never.
    ///
    /// # Errors
    /// `Missing`, or when the database fails.
    pub async fn issue_token(
        &self,
        caller: &str,
        expires_at: i64,
        by: Author<'_>,
    ) -> Result<NewToken, CatalogError> {
        let new = NewToken::random(tokens::CALLER);
        let id = self.caller_id(caller)?;
        self.store.add_caller_token(&id, &new.hash, &new.prefix, expires_at).await?;
        let after = json!({ "prefix": new.prefix, "expires_at": expires_at }).to_string();
        self.audit(by, "create token", &format!("caller {caller}"), None, Some(&after)).await?;
        self.reload().await?;
        Ok(new)
    }

    /// Takes back the tokens of a caller that are shown as `prefix`; returns how many.
    ///
    /// # Errors
    /// `Missing` when there is none, or when the database fails.
    pub async fn revoke_tokens(
        &self,
        caller: &str,
        prefix: &str,
        by: Author<'_>,
    ) -> Result<u64, CatalogError> {
        let id = self.caller_id(caller)?;
        let revoked = self.store.remove_caller_tokens(&id, prefix).await?;
        if revoked == 0 {
            return Err(CatalogError::Missing(format!("a token {prefix} of caller {caller}")));
        }
        let before = json!({ "prefix": prefix }).to_string();
        self.audit(by, "delete token", &format!("caller {caller}"), Some(&before), None).await?;
        self.reload().await?;
        Ok(revoked)
    }

    /// Every caller's tokens as they are shown, by caller id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tokens(&self) -> Result<HashMap<String, Vec<TokenView>>, CatalogError> {
        let mut tokens: HashMap<String, Vec<TokenView>> = HashMap::new();
        for (caller, token) in self.store.caller_tokens().await? {
            tokens.entry(caller).or_default().push(token);
        }
        Ok(tokens)
    }

    /// Writes down what an operator did beside editing rows. `before` and `after` are JSON.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn audit(
        &self,
        by: Author<'_>,
        action: &str,
        object: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<(), CatalogError> {
        Ok(self.store.audit(by.0, action, object, before, after).await?)
    }

    /// What operators did, newest first, from behind `cursor` (an entry's id).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn audit_log(&self, cursor: Option<&str>, limit: u32) -> Result<Vec<AuditEntry>, CatalogError> {
        Ok(self.store.audit_log(cursor, limit.into()).await?)
    }
}
