//! Accounts: what crosses to the browser, and the server functions of the page.

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::port::{Cooldown, LastError, Moment, PortError};
use crate::secret::Secret;

#[cfg(feature = "ssr")]
use {
    super::port::AccountsPort,
    crate::port::{Presence, blank_is_none},
    crate::session::api::{Role, authorise},
    std::sync::Arc,
};

/// One account: what stands still. What moves is in [`LiveAccount`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountRow {
    /// Its name for people; unique.
    pub label: String,
    /// The provider's key.
    pub provider: String,
    /// The last four characters of its key; none for an account without one.
    pub key_last4: Option<String>,
    /// Its limits and whether it is used.
    pub settings: AccountEdit,
    /// The models it serves, by name.
    pub bindings: Vec<BindingRow>,
    /// Why it can't be used at all, such as a key that can't be opened.
    pub problem: Option<String>,
}

/// A binding, seen from the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRow {
    /// The model's name.
    pub model: String,
    /// The lowest number is used first; equal ones take turns.
    pub priority: i64,
}

/// Everything on the page that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountLive {
    /// When the server answered.
    pub at: Moment,
    /// Every account.
    pub accounts: Vec<LiveAccount>,
}

/// What moves about one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveAccount {
    /// Its label.
    pub label: String,
    /// Requests of the last second, in thousandths.
    pub rps_milli: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// Requests sent today, in the day of FOREBAY_TIME_ZONE.
    pub used_today: u64,
    /// What is set aside: the whole account, or it for one model.
    pub cooldowns: Vec<Cooldown>,
    /// When it last served an attempt.
    pub last_used: Option<Moment>,
    /// Its last failure.
    pub last_error: Option<LastError>,
}

/// The limits of an account, as the form shows and sends them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountEdit {
    /// Requests a second; decimals allowed.
    pub max_rps: f64,
    /// Calls at once; none is unlimited.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub max_concurrency: Option<u32>,
    /// Tokens a minute; none is unlimited.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub max_tpm: Option<u64>,
    /// Requests a day of FOREBAY_TIME_ZONE; none is unlimited.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub daily_limit: Option<u64>,
    /// Where its limits apply.
    #[cfg_attr(feature = "ssr", serde(default, deserialize_with = "blank_is_none"))]
    pub region: Option<String>,
    /// In use.
    #[serde(default)]
    pub is_enabled: bool,
}

impl Default for AccountEdit {
    fn default() -> Self {
        Self {
            max_rps: 50.0,
            max_concurrency: None,
            max_tpm: None,
            daily_limit: None,
            region: None,
            is_enabled: true,
        }
    }
}

/// A new account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountNew {
    /// Its name for people; unique.
    pub label: String,
    /// The provider's key.
    pub provider: String,
    /// The upstream credential.
    pub key: Secret,
    /// Its limits.
    pub settings: AccountEdit,
}

/// What the forms offer to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountChoices {
    /// Keys of the providers, sorted.
    pub providers: Vec<String>,
    /// Models that an account can be bound to, sorted.
    pub models: Vec<ModelChoice>,
}

/// A model that an account can be bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// The model's name.
    pub name: String,
    /// Its provider's key: an account serves models of its own provider.
    pub provider: String,
}

/// The page in one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountsView {
    /// Every account.
    pub accounts: Vec<AccountRow>,
    /// What moves.
    pub live: AccountLive,
    /// What the forms offer.
    pub choices: AccountChoices,
}

/// The page.
#[server]
pub async fn load_accounts() -> Result<AccountsView, PortError> {
    authorise(Role::Viewer, Presence::Acting).await?;
    let port = accounts();
    Ok(AccountsView {
        accounts: port.list().await?,
        live: port.live().await?,
        choices: port.choices().await?,
    })
}

/// What moves. Asked every five seconds.
#[server]
pub async fn watch_accounts() -> Result<AccountLive, PortError> {
    authorise(Role::Viewer, Presence::Watching).await?;
    accounts().live().await
}

/// Adds an account; gives its label back.
#[server]
pub async fn add_account(account: AccountNew) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    if account.label.trim().is_empty() {
        return Err(PortError::invalid("label", "1 character or more"));
    }
    accounts().add(&operator, &account).await?;
    Ok(account.label)
}

/// Changes the limits of an account; gives its label back.
#[server]
pub async fn edit_account(label: String, edit: AccountEdit) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    accounts().edit(&operator, &label, &edit).await?;
    Ok(label)
}

/// Replaces the key of an account; gives its label back.
#[server]
pub async fn replace_key(label: String, key: Secret) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    if key.expose().trim().is_empty() {
        return Err(PortError::invalid("key", "1 character or more"));
    }
    accounts().replace_key(&operator, &label, &key).await?;
    Ok(label)
}

/// Binds an account to a model; gives the model's name back.
#[server]
pub async fn bind_account(label: String, model: String, priority: i64) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    accounts().bind(&operator, &model, &label, priority).await?;
    Ok(model)
}

/// Takes a binding away; gives the model's name back.
#[server]
pub async fn unbind_account(label: String, model: String) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    accounts().unbind(&operator, &model, &label).await?;
    Ok(model)
}

/// Ends every cooldown of an account; gives its label back.
#[server]
pub async fn clear_cooldown(label: String) -> Result<String, PortError> {
    let operator = authorise(Role::Admin, Presence::Acting).await?;
    accounts().clear_cooldown(&operator, &label).await?;
    Ok(label)
}

#[cfg(feature = "ssr")]
fn accounts() -> Arc<dyn AccountsPort> {
    expect_context()
}
