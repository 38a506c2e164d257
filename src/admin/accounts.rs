//! Accounts: bindings and cooldowns in the API, and the console's `AccountsPort`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use forebay_app::accounts::api::{
    AccountChoices, AccountEdit, AccountLive, AccountNew, AccountRow, BindingRow, LiveAccount, ModelChoice,
};
use forebay_app::accounts::port::AccountsPort;
use forebay_app::port::{LastError, PortError, PortFuture};
use forebay_app::secret::Secret;
use forebay_app::session::api::Operator;
use forebay_engine::Failure;
use forebay_engine::{AccountId, Moment, Priority};
use forebay_wire::import::Section;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::body::OptionalBody;
use super::error::AdminError;
use super::operator::Administrator;
use super::pools::shown_cooldown;
use super::times::{ms, shown};
use crate::catalog::{Author, ConfigRow, Snapshot, last_four};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingWish {
    #[serde(default)]
    priority: i64,
}

/// PUT /models/{name}/accounts/{label}
pub(super) async fn bind(
    by: Administrator,
    State(admin): State<Admin>,
    Path((model, label)): Path<(String, String)>,
    OptionalBody(wish): OptionalBody<BindingWish>,
) -> Result<Json<Value>, AdminError> {
    admin.bind_account(&by.name, &model, &label, wish.priority).await?;
    Ok(Json(json!({ "model": model, "account": label, "priority": wish.priority })))
}

/// DELETE /models/{name}/accounts/{label}
pub(super) async fn unbind(
    by: Administrator,
    State(admin): State<Admin>,
    Path((model, label)): Path<(String, String)>,
) -> Result<Json<Value>, AdminError> {
    admin.catalog.unbind(&model, &label, Author(&by.name)).await?;
    Ok(Json(json!({ "model": model, "unbound": label })))
}

/// POST /accounts/{label}/clear-cooldown
pub(super) async fn clear_cooldown(
    by: Administrator,
    State(admin): State<Admin>,
    Path(label): Path<String>,
) -> Result<Json<Value>, AdminError> {
    admin.end_cooldowns(&by.name, &label).await?;
    Ok(Json(json!({ "account": label, "cooldown": null })))
}

impl Admin {
    async fn bind_account(
        &self,
        by: &str,
        model: &str,
        label: &str,
        priority: i64,
    ) -> Result<(), AdminError> {
        let priority =
            Priority::try_new(priority).map_err(|error| AdminError::invalid("priority", error.0))?;
        self.catalog.bind(model, label, priority, Author(by)).await?;
        Ok(())
    }

    async fn put_account(&self, by: &Operator, label: &str, row: &Value) -> Result<(), PortError> {
        self.put_row(&by.name, Section::Accounts, label, row).await?;
        Ok(())
    }

    fn account_exists(&self, label: &str) -> Result<(), AdminError> {
        let snapshot = self.catalog.snapshot();
        let found = snapshot.rows.find(Section::Accounts, label);
        found.map(drop).ok_or_else(|| AdminError::not_found(format!("account {label}")))
    }

    /// Accounts whose models are all inactive show no cooldown: nothing can use them.
    fn live_accounts(&self, used_today: &HashMap<String, i64>) -> AccountLive {
        let now = self.now();
        let snapshot = self.catalog.snapshot();
        let mut live: HashMap<&str, LiveAccount> = snapshot
            .rows
            .accounts
            .iter()
            .map(|row| {
                let used = used_today.get(&row.id).copied().unwrap_or_default();
                (row.id.as_str(), self.live_account(row, u64::try_from(used).unwrap_or_default(), now))
            })
            .collect();
        for pool in snapshot.alone.values() {
            for member in pool.members() {
                for binding in &member.accounts {
                    let Some(account) = live.get_mut(&*binding.account.id.0) else {
                        continue;
                    };
                    let label = Some(&*binding.account.label);
                    account.cooldowns.extend(shown_cooldown(
                        &binding.cooldown,
                        label,
                        Some(&member.name),
                        now,
                    ));
                }
            }
        }
        let mut accounts: Vec<_> = live.into_values().collect();
        accounts.sort_by(|a, b| a.label.cmp(&b.label));
        AccountLive { at: shown(ms(now), &self.time_zone), accounts }
    }

    fn live_account(&self, row: &ConfigRow, used_today: u64, now: Moment) -> LiveAccount {
        let revision = row.key.as_ref().map_or(1, |key| key.revision);
        let id = AccountId(row.id.as_str().into());
        let state = self.state.account(&id, u64::try_from(revision).unwrap_or_default());
        LiveAccount {
            label: row.name.clone(),
            rps_milli: (state.requests_per_second(now) * 1_000.0) as u64,
            in_flight: state.in_flight.taken().into(),
            used_today,
            cooldowns: shown_cooldown(&state.cooldown, Some(&row.name), None, now).into_iter().collect(),
            last_used: state.last_used().map(|at| shown(ms(at), &self.time_zone)),
            last_error: state.last_failure().map(|(at, failure)| self.last_error(at, failure)),
        }
    }

    pub(super) fn last_error(&self, at: Moment, failure: Failure) -> LastError {
        LastError {
            at: shown(ms(at), &self.time_zone),
            class: failure.class.to_string(),
            http_status: failure.http_status,
            message: failure.message,
        }
    }
}

impl AccountsPort for Admin {
    fn list(&self) -> PortFuture<'_, Vec<AccountRow>> {
        Box::pin(async {
            let snapshot = self.catalog.snapshot();
            Ok(snapshot.rows.accounts.iter().map(|row| account_row(&snapshot, row)).collect())
        })
    }

    fn live(&self) -> PortFuture<'_, AccountLive> {
        Box::pin(async {
            let day = jiff::Timestamp::from_millisecond(ms(self.now())).unwrap_or_default();
            let day = day.to_zoned(self.time_zone.clone()).date().to_string();
            let used = self.ledger.requests_on(&day).await.map_err(AdminError::from)?;
            Ok(self.live_accounts(&used))
        })
    }

    fn choices(&self) -> PortFuture<'_, AccountChoices> {
        Box::pin(async {
            let snapshot = self.catalog.snapshot();
            let models = snapshot.rows.models.iter();
            Ok(AccountChoices {
                providers: snapshot.providers.keys().cloned().collect(),
                models: models
                    .map(|row| ModelChoice {
                        name: row.name.clone(),
                        provider: row.text("provider").to_owned(),
                    })
                    .collect(),
            })
        })
    }

    fn add<'a>(&'a self, by: &'a Operator, account: &'a AccountNew) -> PortFuture<'a, ()> {
        Box::pin(async move {
            if self.account_exists(&account.label).is_ok() {
                return Err(PortError::conflict(format!("account {} exists already", account.label)));
            }
            if account.key.expose().is_empty() {
                return Err(PortError::invalid("key", "must not be empty"));
            }
            let mut row = limits(&account.settings);
            row["provider"] = account.provider.clone().into();
            row["account_key"] = account.key.expose().into();
            self.put_account(by, &account.label, &row).await
        })
    }

    fn edit<'a>(&'a self, by: &'a Operator, label: &'a str, edit: &'a AccountEdit) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.account_exists(label)?;
            self.put_account(by, label, &limits(edit)).await
        })
    }

    fn replace_key<'a>(&'a self, by: &'a Operator, label: &'a str, key: &'a Secret) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.account_exists(label)?;
            if key.expose().is_empty() {
                return Err(PortError::invalid("key", "must not be empty"));
            }
            self.put_account(by, label, &json!({ "account_key": key.expose() })).await
        })
    }

    fn bind<'a>(
        &'a self,
        by: &'a Operator,
        model: &'a str,
        account: &'a str,
        priority: i64,
    ) -> PortFuture<'a, ()> {
        Box::pin(async move { Ok(self.bind_account(&by.name, model, account, priority).await?) })
    }

    fn unbind<'a>(&'a self, by: &'a Operator, model: &'a str, account: &'a str) -> PortFuture<'a, ()> {
        Box::pin(async move {
            let unbound = self.catalog.unbind(model, account, Author(&by.name)).await;
            unbound.map(drop).map_err(|error| AdminError::from(error).into())
        })
    }

    fn clear_cooldown<'a>(&'a self, by: &'a Operator, label: &'a str) -> PortFuture<'a, ()> {
        Box::pin(async move { Ok(self.end_cooldowns(&by.name, label).await?) })
    }
}

/// The form's fields are those of the import file.
fn limits(edit: &AccountEdit) -> Value {
    serde_json::to_value(edit).unwrap_or_default()
}

fn account_row(snapshot: &Snapshot, row: &ConfigRow) -> AccountRow {
    let id = AccountId(row.id.as_str().into());
    let whole = |column: &str| row.whole(column).and_then(|number| u64::try_from(number).ok());
    let mut bindings: Vec<BindingRow> = snapshot
        .rows
        .bindings
        .iter()
        .filter(|binding| binding.account_id == row.id)
        .filter_map(|binding| {
            let model = snapshot.rows.models.iter().find(|model| model.id == binding.model_id)?;
            Some(BindingRow { model: model.name.clone(), priority: binding.priority })
        })
        .collect();
    bindings.sort_by(|a, b| (a.priority, &a.model).cmp(&(b.priority, &b.model)));
    AccountRow {
        label: row.name.clone(),
        provider: row.text("provider").to_owned(),
        key_last4: last_four(snapshot, &id),
        settings: AccountEdit {
            max_rps: row.real("max_rps").unwrap_or_default(),
            max_concurrency: row.whole("max_concurrency").and_then(|limit| u32::try_from(limit).ok()),
            max_tpm: whole("max_tpm"),
            daily_limit: whole("daily_limit"),
            region: row.optional_text("region").map(str::to_owned),
            is_enabled: row.flag("is_enabled"),
        },
        bindings,
        problem: snapshot.account_problems.get(&id).cloned(),
    }
}
