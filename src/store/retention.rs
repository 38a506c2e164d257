//! The removal of what is old: a batch at a time, by ids that sort by time.

use sqlx::AssertSqlSafe;

use super::{Store, StoreError};

impl Store {
    /// Removes up to `limit` finished tasks created before `before` (milliseconds UTC), with their
    /// attempts. The credit ledger stays: it is what balances add up from.
    pub(crate) async fn remove_old_tasks(&self, before: i64, limit: i64) -> Result<u64, StoreError> {
        const OLD: &str = "SELECT id FROM ai_tasks WHERE id < $1 AND hold_state <> 'held'
            AND status NOT IN ('queued', 'running') ORDER BY id LIMIT $2";
        let mut transaction = self.write().await?;
        let border = border(before);
        sqlx::query(AssertSqlSafe(format!("DELETE FROM ai_model_attempts WHERE task_id IN ({OLD})")))
            .bind(&border)
            .bind(limit)
            .execute(&mut *transaction)
            .await?;
        let removed = sqlx::query(AssertSqlSafe(format!("DELETE FROM ai_tasks WHERE id IN ({OLD})")))
            .bind(&border)
            .bind(limit)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(removed.rows_affected())
    }

    /// Removes up to `limit` breaker events from before `before`.
    pub(crate) async fn remove_old_events(&self, before: i64, limit: i64) -> Result<u64, StoreError> {
        self.remove_old("breaker_events", before, limit).await
    }

    /// Removes up to `limit` entries of the audit log from before `before`.
    pub(crate) async fn remove_old_audit(&self, before: i64, limit: i64) -> Result<u64, StoreError> {
        self.remove_old("audit_log", before, limit).await
    }

    async fn remove_old(&self, table: &'static str, before: i64, limit: i64) -> Result<u64, StoreError> {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE id < $1 ORDER BY id LIMIT $2)"
        );
        let removed =
            sqlx::query(AssertSqlSafe(sql)).bind(border(before)).bind(limit).execute(self.pool()).await?;
        Ok(removed.rows_affected())
    }
}

/// What every UUIDv7 made before that moment is smaller than.
fn border(ms: i64) -> String {
    let digits = format!("{:012x}", u64::try_from(ms).unwrap_or_default());
    let (high, low) = digits.split_at(8);
    format!("{high}-{low}")
}

#[cfg(test)]
mod tests {
    use super::border;

    #[test]
    fn ids_sort_on_their_side_of_the_border() {
        let now = 1_796_000_000_000;
        let id = |ms: u64| {
            let at = uuid::Timestamp::from_unix(uuid::NoContext, ms / 1_000, (ms % 1_000) as u32 * 1_000_000);
            uuid::Uuid::new_v7(at).to_string()
        };
        assert!(id(now - 1) < border(now as i64) && id(now) > border(now as i64));
    }
}
