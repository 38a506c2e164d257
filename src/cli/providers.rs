//! `forebay check --providers`: every enabled provider is asked, in order of its key.

use secrecy::SecretString;

use super::Checked;
use crate::catalog::{Provider, Snapshot};
use crate::upstream::inspect::Inspector;

/// What was found at each provider that some model uses.
pub(super) async fn check(snapshot: &Snapshot) -> Vec<Checked> {
    let mut checks = Vec::new();
    let is_used =
        |provider: &Provider| snapshot.models.values().any(|model| model.provider.key == provider.key);
    for provider in snapshot.providers.values().filter(|provider| provider.is_enabled && is_used(provider)) {
        let name = |what: &str| format!("provider {}: {what}", provider.key);
        let inspector = match Inspector::new(provider) {
            Ok(inspector) => inspector,
            Err(why) => {
                checks.push((name("address"), Err(why)));
                continue;
            }
        };
        let found = inspector.name().await;
        let is_found = found.is_ok();
        checks.push((name("name"), found));
        if !is_found {
            continue;
        }
        let connection = inspector.connection().await;
        let answers = connection.is_ok();
        checks.push((name("connection"), connection));
        for (label, key) in keys(snapshot, provider).into_iter().filter(|_| answers) {
            checks.push((name(&format!("account {label}")), inspector.key(&key).await));
        }
    }
    checks
}

/// The enabled accounts of a provider whose keys could be opened.
fn keys(snapshot: &Snapshot, provider: &Provider) -> Vec<(String, SecretString)> {
    let rows = snapshot.rows.accounts.iter();
    rows.filter(|row| row.text("provider") == &*provider.key && row.flag("is_enabled"))
        .filter_map(|row| {
            let credential = snapshot.accounts.get(&forebay_engine::AccountId(row.id.as_str().into()))?;
            Some((row.name.clone(), credential.key.clone()))
        })
        .collect()
}
