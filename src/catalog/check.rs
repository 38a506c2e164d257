//! Whether a configuration holds together. Whoever wrote it (an import, a form, hand-written SQL), it
//! passes here before it is taken.

use std::collections::{HashMap, HashSet};

use forebay_wire::import::{self, Problem, Section};
use serde_json::Value;

use super::export::{Names, row_json};
use crate::store::config::{ConfigRow, Configuration};

/// Everything that is wrong with it.
pub(super) fn problems(configuration: &Configuration) -> Vec<Problem> {
    let mut problems = Vec::new();
    let names = Names::of(configuration);
    for section in Section::ALL {
        for row in configuration.rows(section) {
            let written = Value::Object(row_json(section, row, configuration, &names));
            if let Err(wrong) = import::parse_row(section, &row.name, &written) {
                problems.extend(wrong);
            }
        }
    }
    references(configuration, &mut problems);
    aliases(configuration, &mut problems);
    settings(configuration, &mut problems);
    problems
}

fn references(configuration: &Configuration, problems: &mut Vec<Problem>) {
    let providers: HashSet<&str> = configuration.providers.iter().map(|row| row.name.as_str()).collect();
    for (section, rows) in
        [(Section::Accounts, &configuration.accounts), (Section::Models, &configuration.models)]
    {
        for row in rows {
            let provider = row.text("provider");
            if !providers.contains(provider) {
                let remedy = if provider.is_empty() {
                    "is missing; name the key of a provider".to_owned()
                } else {
                    format!("there is no provider {provider}; create it first, or put it in the same file")
                };
                problems.push(Problem::new(named(section, row), "provider", remedy));
            }
        }
    }
    let accounts = by_id(&configuration.accounts);
    let models = by_id(&configuration.models);
    let pools = by_id(&configuration.pools);
    for binding in &configuration.bindings {
        let (Some(model), Some(account)) =
            (models.get(binding.model_id.as_str()), accounts.get(binding.account_id.as_str()))
        else {
            continue;
        };
        let (of_model, of_account) = (model.text("provider"), account.text("provider"));
        if of_model != of_account {
            problems.push(Problem::new(
                named(Section::Models, model),
                "accounts",
                format!("account {} is of provider {of_account}, the model of {of_model}", account.name),
            ));
        }
    }
    let keys: HashSet<&str> = configuration.pools.iter().map(|pool| pool.name.as_str()).collect();
    for caller in &configuration.callers {
        let allowed = caller.plan.iter().flat_map(|plan| &plan.pools);
        for unknown in allowed.filter(|key| !keys.contains(key.as_str())) {
            let remedy = format!("there is no pool {unknown}; create it first, or put it in the same file");
            problems.push(Problem::new(named(Section::Callers, caller), "pools", remedy));
        }
    }
    for pool in &configuration.pools {
        let named = pool.optional_text("deep_thinking_model").filter(|name| !name.is_empty());
        if let Some(name) = named
            && configuration.find(Section::Models, name).is_none()
        {
            let remedy = format!("there is no model {name}; create it first, or put it in the same file");
            problems.push(Problem::new(self::named(Section::Pools, pool), "deep_thinking_model", remedy));
        }
    }
    for model in &configuration.models {
        let pool = model.group_id.as_deref().and_then(|id| pools.get(id));
        if let Some(pool) = pool
            && pool.text("capability") != model.text("capability")
        {
            problems.push(Problem::new(
                named(Section::Models, model),
                "pool",
                format!(
                    "pool {} is for {}, the model for {}",
                    pool.name,
                    pool.text("capability"),
                    model.text("capability")
                ),
            ));
        }
    }
}

/// A name leads to one thing only, except that a pool and a model may share theirs: the pool wins.
fn aliases(configuration: &Configuration, problems: &mut Vec<Problem>) {
    let mut taken: HashMap<&str, String> = HashMap::new();
    for section in [Section::Pools, Section::Models] {
        for row in configuration.rows(section) {
            taken.entry(row.name.as_str()).or_insert_with(|| named(section, row));
        }
    }
    let mut aliases: HashMap<&str, String> = HashMap::new();
    for section in [Section::Pools, Section::Models] {
        for row in configuration.rows(section) {
            let Some(alias) = row.optional_text("public_alias").filter(|alias| !alias.is_empty()) else {
                continue;
            };
            let me = named(section, row);
            let other = taken.get(alias).filter(|other| **other != me).or_else(|| aliases.get(alias));
            if let Some(other) = other {
                problems.push(Problem::new(&me, "public_alias", format!("{alias} is taken by {other}")));
            }
            aliases.insert(alias, me);
        }
    }
}

fn settings(configuration: &Configuration, problems: &mut Vec<Problem>) {
    let dotted: serde_json::Map<String, Value> =
        configuration.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Err(wrong) = import::parse_settings(&Value::Object(dotted)) {
        problems.extend(wrong);
    }
    for (name, value) in &configuration.settings {
        let (Some(capability), Some(key)) = (name.strip_prefix("default_pool."), value.as_str()) else {
            continue;
        };
        match configuration.find(Section::Pools, key) {
            None => problems.push(Problem::new("settings", name, format!("there is no pool {key}"))),
            Some(pool) if pool.text("capability") != capability => {
                let remedy = format!("pool {key} is for {}", pool.text("capability"));
                problems.push(Problem::new("settings", name, remedy));
            }
            Some(_) => {}
        }
    }
}

fn by_id(rows: &[ConfigRow]) -> HashMap<&str, &ConfigRow> {
    rows.iter().map(|row| (row.id.as_str(), row)).collect()
}

fn named(section: Section, row: &ConfigRow) -> String {
    format!("{} {}", section.one(), row.name)
}
