//! `callers`, their tokens and credits.

use sqlx::Row;

use super::{Store, StoreError, exists};

/// A token of a caller, as it is shown: never the token itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenView {
    /// Its first characters.
    pub prefix: String,
    /// Milliseconds UTC; 0 = never.
    pub expires_at: i64,
    /// Milliseconds UTC.
    pub created_at: i64,
}

/// A caller's balance and what it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// `grant` or `adjust`.
    pub kind: String,
    /// Micro-units.
    pub amount: i64,
    /// Micro-units.
    pub balance_after: i64,
    /// Why.
    pub reason: Option<String>,
    /// Who gave it.
    pub by_operator: Option<String>,
    /// Milliseconds UTC.
    pub created_at: i64,
}

impl Store {
    /// Whether a caller has any task.
    pub(crate) async fn has_tasks(&self, caller_id: &str) -> Result<bool, StoreError> {
        let found = sqlx::query("SELECT id FROM ai_tasks WHERE caller_id = $1 LIMIT 1")
            .bind(caller_id)
            .fetch_optional(self.pool())
            .await?;
        Ok(found.is_some())
    }

    /// The id of the caller called `name`.
    pub(crate) async fn caller_id(&self, name: &str) -> Result<Option<String>, StoreError> {
        let row = sqlx::query("SELECT id FROM callers WHERE name = $1")
            .bind(name)
            .fetch_optional(self.pool())
            .await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?)
    }

    /// Keeps a new token: only its hash and its first characters.
    pub(crate) async fn add_caller_token(
        &self,
        caller_id: &str,
        hash: &str,
        prefix: &str,
        expires_at: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO caller_tokens (hash, caller_id, prefix, expires_at, created_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(hash)
        .bind(caller_id)
        .bind(prefix)
        .bind(expires_at)
        .bind(Self::now_ms())
        .execute(self.pool())
        .await
        .map_err(exists("the token"))?;
        Ok(())
    }

    /// Takes back the tokens of a caller that begin with `prefix`; returns how many.
    pub(crate) async fn remove_caller_tokens(
        &self,
        caller_id: &str,
        prefix: &str,
    ) -> Result<u64, StoreError> {
        let done = sqlx::query("DELETE FROM caller_tokens WHERE caller_id = $1 AND prefix = $2")
            .bind(caller_id)
            .bind(prefix)
            .execute(self.pool())
            .await?;
        Ok(done.rows_affected())
    }

    /// The tokens of every caller, by caller id.
    pub(crate) async fn caller_tokens(&self) -> Result<Vec<(String, TokenView)>, StoreError> {
        let rows = sqlx::query(
            "SELECT caller_id, prefix, expires_at, created_at FROM caller_tokens ORDER BY created_at, prefix",
        )
        .fetch_all(self.pool())
        .await?;
        rows.iter()
            .map(|row| {
                let token = TokenView {
                    prefix: row.try_get("prefix")?,
                    expires_at: row.try_get("expires_at")?,
                    created_at: row.try_get("created_at")?,
                };
                Ok((row.try_get("caller_id")?, token))
            })
            .collect()
    }

    /// Gives credits (`amount` in micro-units, negative to take some back) and returns the new
    /// balance. Ledger row and balance are one transaction.
    pub(crate) async fn grant(
        &self,
        caller_id: &str,
        amount: i64,
        reason: Option<&str>,
        by: &str,
    ) -> Result<i64, StoreError> {
        let mut transaction = self.write().await?;
        let balance = grant_in(&mut transaction, caller_id, amount, reason, by).await?;
        transaction.commit().await?;
        Ok(balance)
    }

    /// The balances of all callers, by id, in micro-units.
    pub(crate) async fn balances(&self) -> Result<std::collections::HashMap<String, i64>, StoreError> {
        let rows =
            sqlx::query("SELECT caller_id, balance FROM credit_accounts").fetch_all(self.pool()).await?;
        rows.iter().map(|row| Ok((row.try_get("caller_id")?, row.try_get("balance")?))).collect()
    }

    /// Balance less what the ledger adds up to, of every caller where the two differ.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn credit_differences(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query(
            "SELECT c.caller_id, c.balance - CAST(COALESCE(SUM(l.amount), 0) AS BIGINT) AS difference
             FROM credit_accounts c LEFT JOIN credit_ledger l ON l.caller_id = c.caller_id
             GROUP BY c.caller_id, c.balance
             HAVING c.balance <> COALESCE(SUM(l.amount), 0) ORDER BY c.caller_id",
        )
        .fetch_all(self.pool())
        .await?;
        rows.iter().map(|row| Ok((row.try_get("caller_id")?, row.try_get("difference")?))).collect()
    }

    /// What a caller was granted, newest first.
    pub(crate) async fn grants(&self, caller_id: &str, limit: i64) -> Result<Vec<Grant>, StoreError> {
        let rows = sqlx::query(
            "SELECT kind, amount, balance_after, reason, by_operator, created_at FROM credit_ledger
             WHERE caller_id = $1 AND task_id IS NULL ORDER BY created_at DESC LIMIT $2",
        )
        .bind(caller_id)
        .bind(limit)
        .fetch_all(self.pool())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Grant {
                    kind: row.try_get("kind")?,
                    amount: row.try_get("amount")?,
                    balance_after: row.try_get("balance_after")?,
                    reason: row.try_get("reason")?,
                    by_operator: row.try_get("by_operator")?,
                    created_at: row.try_get("created_at")?,
                })
            })
            .collect()
    }
}

/// Gives credits inside a transaction of the caller's.
pub(crate) async fn grant_in(
    transaction: &mut sqlx::Transaction<'static, sqlx::Any>,
    caller_id: &str,
    amount: i64,
    reason: Option<&str>,
    by: &str,
) -> Result<i64, StoreError> {
    let balance: i64 = sqlx::query(
        "INSERT INTO credit_accounts (caller_id, balance, updated_at) VALUES ($1, $2, $3)
         ON CONFLICT (caller_id) DO UPDATE
             SET balance = credit_accounts.balance + excluded.balance, updated_at = excluded.updated_at
         RETURNING balance",
    )
    .bind(caller_id)
    .bind(amount)
    .bind(Store::now_ms())
    .fetch_one(&mut **transaction)
    .await?
    .try_get("balance")?;
    sqlx::query(
        "INSERT INTO credit_ledger (caller_id, kind, amount, balance_after, reason, by_operator, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(caller_id)
    .bind(if amount >= 0 { "grant" } else { "adjust" })
    .bind(amount)
    .bind(balance)
    .bind(reason)
    .bind(by)
    .bind(Store::now_ms())
    .execute(&mut **transaction)
    .await?;
    Ok(balance)
}
