//! Edits: whole or nothing, in one transaction that ends with the check of the result.

use std::collections::{BTreeMap, HashMap};

use forebay_wire::import::{Document, Item, MASK, Problem, Section};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::AnyConnection;

use super::export::{self, Names, row_json};
use super::{Catalog, CatalogError, account_key, check, own_key};
use crate::store::audit::audit_in;
use crate::store::callers::grant_in;
use crate::store::config::{self, ConfigRow, Configuration, OwnKey, StoredKey};
use crate::store::new_id;

/// Who makes an edit, for the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a>(pub &'a str);

/// What an edit changes, or would change.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Difference {
    /// Row by row.
    pub changes: Vec<Change>,
}

/// One row's change. Keys are masked; a replaced one shows as another revision.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// `model sim-fast`.
    pub object: String,
    /// `create`, `change`, `delete`.
    pub action: &'static str,
    /// Field → its value before; null for a new row.
    pub before: Value,
    /// Field → its value after; null for a deleted row.
    pub after: Value,
}

type Transaction = sqlx::Transaction<'static, sqlx::Any>;

impl Catalog {
    /// Applies an import file, or tells what it would change.
    ///
    /// # Errors
    /// When the result would not hold together: nothing is changed then.
    pub async fn import(
        &self,
        document: &Document,
        by: Author<'_>,
        dry_run: bool,
    ) -> Result<Difference, CatalogError> {
        let _turn = self.turn.lock().await;
        let mut transaction = self.store.write().await?;
        let before = config::read_all(&mut transaction).await?;
        for item in &document.items {
            self.put_item(&mut transaction, item, by).await?;
        }
        for (name, value) in &document.settings {
            if before.settings.get(name).unwrap_or(&Value::Null) != value {
                config::set_setting(&mut transaction, name, value).await?;
            }
        }
        self.finish(transaction, &before, by, dry_run).await
    }

    /// Creates or changes one row.
    ///
    /// # Errors
    /// When the result would not hold together: nothing is changed then.
    pub async fn put(&self, item: Item, by: Author<'_>) -> Result<Difference, CatalogError> {
        let document = Document { items: vec![item], settings: BTreeMap::new() };
        self.import(&document, by, false).await
    }

    /// Changes settings; null = back to the default.
    ///
    /// # Errors
    /// When the result would not hold together: nothing is changed then.
    pub async fn set_settings(
        &self,
        settings: BTreeMap<String, Value>,
        by: Author<'_>,
    ) -> Result<Difference, CatalogError> {
        self.import(&Document { items: Vec::new(), settings }, by, false).await
    }

    /// Deletes a row that nothing uses.
    ///
    /// # Errors
    /// `InUse` with what uses it, or `Missing`.
    pub async fn remove(
        &self,
        section: Section,
        name: &str,
        by: Author<'_>,
    ) -> Result<Difference, CatalogError> {
        let _turn = self.turn.lock().await;
        let mut transaction = self.store.write().await?;
        let before = config::read_all(&mut transaction).await?;
        let row = before.find(section, name).ok_or_else(|| missing(section, name))?;
        let mut users = users(&before, section, row);
        if section == Section::Callers && self.store.has_tasks(&row.id).await? {
            users.push("its tasks; to end its access, revoke its tokens".to_owned());
        }
        if !users.is_empty() {
            return Err(CatalogError::InUse { what: format!("{} {name}", section.one()), by: users });
        }
        config::delete(&mut transaction, section, &row.id).await?;
        self.finish(transaction, &before, by, false).await
    }

    /// Binds an account to a model, or changes the binding's priority.
    ///
    /// # Errors
    /// `Missing`, or when the two are of different providers.
    pub async fn bind(
        &self,
        model: &str,
        account: &str,
        priority: forebay_engine::Priority,
        by: Author<'_>,
    ) -> Result<Difference, CatalogError> {
        self.rebind(model, account, Some(priority), by).await
    }

    /// Takes a binding away.
    ///
    /// # Errors
    /// `Missing` when there is none.
    pub async fn unbind(
        &self,
        model: &str,
        account: &str,
        by: Author<'_>,
    ) -> Result<Difference, CatalogError> {
        self.rebind(model, account, None, by).await
    }

    async fn rebind(
        &self,
        model: &str,
        account: &str,
        priority: Option<forebay_engine::Priority>,
        by: Author<'_>,
    ) -> Result<Difference, CatalogError> {
        let _turn = self.turn.lock().await;
        let mut transaction = self.store.write().await?;
        let before = config::read_all(&mut transaction).await?;
        let model_row = before.find(Section::Models, model).ok_or_else(|| missing(Section::Models, model))?;
        let account_row =
            before.find(Section::Accounts, account).ok_or_else(|| missing(Section::Accounts, account))?;
        let mut bindings = bindings_of(&before, &model_row.id);
        let had = bindings.len();
        bindings.retain(|(id, _)| *id != account_row.id);
        match priority {
            Some(priority) => bindings.push((account_row.id.clone(), priority.get().into())),
            None if bindings.len() == had => {
                return Err(CatalogError::Missing(format!(
                    "a binding of model {model} to account {account}"
                )));
            }
            None => {}
        }
        config::set_bindings(&mut transaction, &model_row.id, &bindings).await?;
        self.finish(transaction, &before, by, false).await
    }

    /// Checks the result, writes the audit log, commits (unless it is a dry run) and swaps.
    async fn finish(
        &self,
        mut transaction: Transaction,
        before: &Configuration,
        by: Author<'_>,
        dry_run: bool,
    ) -> Result<Difference, CatalogError> {
        let after = config::read_all(&mut transaction).await?;
        let mut problems = check::problems(&after);
        problems.extend(self.guarded(before, &after));
        if !problems.is_empty() {
            return Err(CatalogError::Invalid(problems));
        }
        let difference = Difference { changes: changes(before, &after) };
        if dry_run || difference.changes.is_empty() {
            transaction.rollback().await?;
            return Ok(difference);
        }
        for change in &difference.changes {
            let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
            let (was, is) = (text(&change.before), text(&change.after));
            audit_in(&mut transaction, by.0, change.action, &change.object, was.as_deref(), is.as_deref())
                .await?;
        }
        transaction.commit().await?;
        self.load().await?;
        Ok(difference)
    }

    /// URLs that are new must pass the guard. Those that were there before stay, whatever it says now.
    fn guarded(&self, before: &Configuration, after: &Configuration) -> Vec<Problem> {
        let Some(guard) = &self.guard else {
            return Vec::new();
        };
        let allowed: HashMap<&str, bool> = after
            .providers
            .iter()
            .map(|row| (row.name.as_str(), row.flag("allow_private_network")))
            .collect();
        let mut problems = Vec::new();
        for section in [Section::Providers, Section::Models] {
            for row in after.rows(section) {
                let provider =
                    if section == Section::Providers { row.name.as_str() } else { row.text("provider") };
                let allow = allowed.get(provider).copied().unwrap_or_default();
                let old = before.find(section, &row.name);
                for column in ["base_url", "proxy_url"] {
                    let Some(url) = row.optional_text(column).filter(|url| !url.is_empty()) else {
                        continue;
                    };
                    let same = old.is_some_and(|old| {
                        old.optional_text(column) == Some(url)
                            && old.whole("allow_private_network") == row.whole("allow_private_network")
                    });
                    if !same && let Err(remedy) = guard(url, allow) {
                        problems.push(Problem::new(
                            format!("{} {}", section.one(), row.name),
                            column,
                            remedy,
                        ));
                    }
                }
            }
        }
        problems
    }

    async fn put_item(
        &self,
        transaction: &mut Transaction,
        item: &Item,
        by: Author<'_>,
    ) -> Result<(), CatalogError> {
        let now = config::read_all(transaction).await?;
        let old = now.find(item.section, &item.name);
        let id = match old {
            None => config::insert(transaction, item.section, &item.name, &item.cells).await?,
            Some(old) => {
                let changed: Vec<_> = item
                    .cells
                    .iter()
                    .filter(|(column, cell)| old.cells.get(column) != Some(cell))
                    .cloned()
                    .collect();
                if !changed.is_empty() {
                    config::update(transaction, item.section, &old.id, &changed).await?;
                }
                old.id.clone()
            }
        };
        match item.section {
            Section::Accounts => self.put_key(transaction, item, old, &id).await,
            Section::Models => {
                put_model(transaction, item, old, &id, &now).await?;
                self.put_own_keys(transaction, item, old, &id).await
            }
            Section::Callers => put_caller(transaction, item, old, &id, by).await,
            Section::Providers | Section::Pools => Ok(()),
        }
    }

    /// A key that is the one already stored replaces nothing: its cooldown stays.
    async fn put_key(
        &self,
        connection: &mut AnyConnection,
        item: &Item,
        old: Option<&ConfigRow>,
        id: &str,
    ) -> Result<(), CatalogError> {
        let Some(key) = &item.account_key else {
            return Ok(());
        };
        let place = account_key(id);
        let stored = old.and_then(|old| old.key.as_ref());
        let same = stored.is_some_and(|stored| {
            self.keys
                .open(place, &stored.text, stored.version)
                .is_ok_and(|old| old.expose_secret() == key.expose())
        });
        if !same {
            let (sealed, version) = self.keys.seal(place, key.expose());
            config::set_key(connection, id, &sealed, version).await?;
        }
        Ok(())
    }
}

impl Catalog {
    /// A model's own keys, in the order of the file. A masked one is the key that is there and has this
    /// mask; a key that is there already keeps its row.
    async fn put_own_keys(
        &self,
        connection: &mut AnyConnection,
        item: &Item,
        old: Option<&ConfigRow>,
        model_id: &str,
    ) -> Result<(), CatalogError> {
        let Some(written) = &item.api_keys else { return Ok(()) };
        let stored = old.map_or(&[][..], |old| old.own_keys.as_slice());
        let mut known: Vec<(String, &OwnKey)> = stored
            .iter()
            .map(|own| {
                let opened = self.keys.open(own_key(&own.id), &own.key.text, own.key.version);
                (opened.map(|key| key.expose_secret().to_owned()).unwrap_or_default(), own)
            })
            .collect();
        let mut keys = Vec::with_capacity(written.len());
        for (place, key) in written.iter().enumerate() {
            let is_it = |clear: &str| match key.is_masked() {
                true => forebay_wire::import::mask(clear) == key.expose() || key.expose() == MASK,
                false => clear == key.expose(),
            };
            if let Some(found) = known.iter().position(|(clear, _)| is_it(clear)) {
                keys.push(known.remove(found).1.clone());
            } else if key.is_masked() {
                let remedy = "is masked, and the model has no such key; enter it in full";
                return Err(invalid(item, &format!("api_keys[{place}]"), remedy));
            } else {
                let id = new_id();
                let (text, version) = self.keys.seal(own_key(&id), key.expose());
                keys.push(OwnKey { id, key: StoredKey { text, version, revision: 1 }, is_enabled: true });
            }
        }
        if keys.as_slice() != stored {
            config::set_own_keys(connection, model_id, &keys).await?;
        }
        Ok(())
    }
}

async fn put_model(
    connection: &mut AnyConnection,
    item: &Item,
    old: Option<&ConfigRow>,
    id: &str,
    now: &Configuration,
) -> Result<(), CatalogError> {
    let group_id = match &item.pool {
        None => old.and_then(|old| old.group_id.clone()),
        Some(None) => None,
        Some(Some(key)) => {
            let pool = now.find(Section::Pools, key);
            Some(pool.ok_or_else(|| invalid(item, "pool", &format!("there is no pool {key}")))?.id.clone())
        }
    };
    let written = old.and_then(|old| old.metadata.as_deref()).unwrap_or("{}");
    let mut metadata: Value = serde_json::from_str(written).unwrap_or_else(|_| json!({}));
    for (name, value) in item.routing.iter().flatten() {
        metadata["routing"][name.as_str()] = (*value).into();
    }
    let is_new =
        |old: &ConfigRow| old.group_id != group_id || old.metadata.as_deref() != Some(&metadata.to_string());
    if old.is_none_or(is_new) && (item.pool.is_some() || item.routing.is_some()) {
        config::set_model(connection, id, group_id.as_deref(), &metadata.to_string()).await?;
    }
    let Some(accounts) = &item.accounts else {
        return Ok(());
    };
    let mut bindings = Vec::new();
    for binding in accounts {
        let account = now.find(Section::Accounts, &binding.label);
        let account = account
            .ok_or_else(|| invalid(item, "accounts", &format!("there is no account {}", binding.label)))?;
        bindings.push((account.id.clone(), i64::from(binding.priority.get())));
    }
    bindings.sort();
    let mut before = bindings_of(now, id);
    before.sort();
    if before != bindings {
        config::set_bindings(connection, id, &bindings).await?;
    }
    Ok(())
}

async fn put_caller(
    transaction: &mut Transaction,
    item: &Item,
    old: Option<&ConfigRow>,
    id: &str,
    by: Author<'_>,
) -> Result<(), CatalogError> {
    let before = old.and_then(|old| old.plan.clone());
    let mut plan = before.clone().unwrap_or(config::Plan { concurrent_tasks: 10, ..config::Plan::default() });
    plan.concurrent_tasks = item.concurrent_tasks.unwrap_or(plan.concurrent_tasks);
    plan.monthly_credits = item.monthly_credits.unwrap_or(plan.monthly_credits);
    if let Some(pools) = &item.pools {
        plan.pools = pools.clone();
        plan.pools.sort();
        plan.pools.dedup();
    }
    if before.as_ref() != Some(&plan) {
        config::set_plan(transaction, id, &plan).await?;
    }
    if let (None, Some(credits)) = (old, item.credits.filter(|credits| *credits > 0)) {
        grant_in(transaction, id, credits, Some("created with the caller"), by.0).await?;
    }
    Ok(())
}

fn bindings_of(configuration: &Configuration, model_id: &str) -> Vec<(String, i64)> {
    let of_model = configuration.bindings.iter().filter(|binding| binding.model_id == model_id);
    of_model.map(|binding| (binding.account_id.clone(), binding.priority)).collect()
}

fn users(configuration: &Configuration, section: Section, row: &ConfigRow) -> Vec<String> {
    let mut users = Vec::new();
    let model_name =
        |id: &str| configuration.models.iter().find(|model| model.id == id).map(|model| &model.name);
    match section {
        Section::Providers => {
            for (section, rows) in
                [(Section::Models, &configuration.models), (Section::Accounts, &configuration.accounts)]
            {
                let of_it = rows.iter().filter(|other| other.text("provider") == row.name);
                users.extend(of_it.map(|other| format!("{} {}", section.one(), other.name)));
            }
        }
        Section::Accounts => {
            let bound = configuration.bindings.iter().filter(|binding| binding.account_id == row.id);
            users.extend(
                bound.filter_map(|binding| Some(format!("model {}", model_name(&binding.model_id)?))),
            );
        }
        Section::Pools => {
            let members =
                configuration.models.iter().filter(|model| model.group_id.as_deref() == Some(&row.id));
            users.extend(members.map(|model| format!("model {}", model.name)));
            let default = configuration.settings.iter().filter(|(name, value)| {
                name.starts_with("default_pool.") && value.as_str() == Some(&row.name)
            });
            users.extend(default.map(|(name, _)| format!("setting {name}")));
            let allowed = configuration
                .callers
                .iter()
                .filter(|caller| caller.plan.as_ref().is_some_and(|plan| plan.pools.contains(&row.name)));
            users.extend(allowed.map(|caller| format!("caller {}", caller.name)));
        }
        Section::Models => {
            let thinking = configuration
                .pools
                .iter()
                .filter(|pool| pool.optional_text("deep_thinking_model") == Some(&row.name));
            users.extend(thinking.map(|pool| format!("pool {}", pool.name)));
        }
        Section::Callers => {}
    }
    users
}

/// What differs between two configurations, as the import file would write it.
fn changes(before: &Configuration, after: &Configuration) -> Vec<Change> {
    let (names_before, names_after) = (Names::of(before), Names::of(after));
    let mut changes = Vec::new();
    for section in Section::ALL {
        for row in after.rows(section) {
            let is = shown(section, row, after, &names_after);
            let was = before.rows(section).iter().find(|old| old.id == row.id);
            let was = was.map(|old| shown(section, old, before, &names_before));
            if was.as_ref() == Some(&is) {
                continue;
            }
            let object = format!("{} {}", section.one(), row.name);
            changes.push(match was {
                None => Change { object, action: "create", before: Value::Null, after: Value::Object(is) },
                Some(was) => {
                    let differs = |name: &String| was.get(name) != is.get(name);
                    let only = |all: &serde_json::Map<String, Value>| -> Value {
                        let fields = all.iter().filter(|(name, _)| differs(name));
                        Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
                    };
                    Change { object, action: "change", before: only(&was), after: only(&is) }
                }
            });
        }
        for row in before.rows(section) {
            if !after.rows(section).iter().any(|new| new.id == row.id) {
                changes.push(Change {
                    object: format!("{} {}", section.one(), row.name),
                    action: "delete",
                    before: Value::Object(shown(section, row, before, &names_before)),
                    after: Value::Null,
                });
            }
        }
    }
    let settings: std::collections::BTreeSet<_> =
        before.settings.keys().chain(after.settings.keys()).collect();
    for name in settings {
        let value = |of: &Configuration| of.settings.get(name).cloned().unwrap_or_default();
        let (was, is) = (value(before), value(after));
        if was != is {
            changes.push(Change {
                object: format!("setting {name}"),
                action: "change",
                before: was,
                after: is,
            });
        }
    }
    changes
}

fn shown(
    section: Section,
    row: &ConfigRow,
    configuration: &Configuration,
    names: &Names<'_>,
) -> serde_json::Map<String, Value> {
    let mut shown = row_json(section, row, configuration, names);
    if let Some(key) = &row.key {
        shown.insert(
            "account_key".into(),
            format!("{} (revision {})", forebay_wire::import::MASK, key.revision).into(),
        );
    }
    shown
}

fn invalid(item: &Item, field: &str, remedy: &str) -> CatalogError {
    CatalogError::Invalid(vec![Problem::new(&item.row, field, remedy)])
}

fn missing(section: Section, name: &str) -> CatalogError {
    CatalogError::Missing(format!("{} {name}", section.one()))
}

impl Catalog {
    /// The configuration of now as an import file; keys are masked.
    pub fn export(&self) -> Value {
        export::export(&self.snapshot().rows)
    }
}
