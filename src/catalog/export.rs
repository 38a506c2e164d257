//! Rows as the import file writes them; keys are masked.

use std::collections::HashMap;

use forebay_wire::import::{Cell, Field, Kind, MASK, Section};
use serde_json::{Map, Value, json};

use crate::store::config::{ConfigRow, Configuration};

/// The whole configuration as an import file. Importing it again changes nothing.
pub fn export(configuration: &Configuration) -> Value {
    let names = Names::of(configuration);
    let mut file = Map::new();
    for section in Section::ALL {
        let rows =
            configuration.rows(section).iter().map(|row| row_json(section, row, configuration, &names));
        file.insert(section.as_str().to_owned(), rows.map(Value::Object).collect());
    }
    file.insert("settings".to_owned(), json!(configuration.settings));
    Value::Object(file)
}

/// One row as the import file writes it.
pub(crate) fn export_row(section: Section, row: &ConfigRow, configuration: &Configuration) -> Value {
    Value::Object(row_json(section, row, configuration, &Names::of(configuration)))
}

/// What rows are called by whom refers to them by id.
pub(super) struct Names<'a> {
    pools: HashMap<&'a str, &'a str>,
    accounts: HashMap<&'a str, &'a str>,
    bindings: HashMap<&'a str, Vec<(&'a str, i64)>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(configuration: &'a Configuration) -> Self {
        fn by_id(rows: &[ConfigRow]) -> HashMap<&str, &str> {
            rows.iter().map(|row| (row.id.as_str(), row.name.as_str())).collect()
        }
        let mut bindings: HashMap<&str, Vec<(&str, i64)>> = HashMap::new();
        for binding in &configuration.bindings {
            bindings.entry(&binding.model_id).or_default().push((&binding.account_id, binding.priority));
        }
        Self { pools: by_id(&configuration.pools), accounts: by_id(&configuration.accounts), bindings }
    }
}

pub(super) fn row_json(
    section: Section,
    row: &ConfigRow,
    configuration: &Configuration,
    names: &Names<'_>,
) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert(section.identity().to_owned(), row.name.clone().into());
    for field in section.fields() {
        let cell = row.cells.get(field.name).unwrap_or(&Cell::Null);
        out.insert(field.name.to_owned(), cell_json(field, cell));
    }
    match section {
        Section::Accounts => {
            out.insert("account_key".to_owned(), MASK.into());
        }
        Section::Models => {
            let pool = row.group_id.as_deref().and_then(|id| names.pools.get(id).copied());
            out.insert("pool".to_owned(), json!(pool));
            out.insert("routing".to_owned(), routing(row));
            let accounts: Vec<Value> = names
                .bindings
                .get(row.id.as_str())
                .into_iter()
                .flatten()
                .filter_map(|(account, priority)| {
                    Some(json!({ "label": names.accounts.get(account)?, "priority": priority }))
                })
                .collect();
            out.insert("accounts".to_owned(), accounts.into());
            if !row.own_keys.is_empty() {
                out.insert("api_keys".to_owned(), vec![MASK; row.own_keys.len()].into());
            }
        }
        Section::Callers => {
            let plan = row.plan.clone().unwrap_or_default();
            let monthly = forebay_wire::import::decimal(plan.monthly_credits);
            out.insert(
                "plan".to_owned(),
                json!({ "concurrent_tasks": plan.concurrent_tasks, "monthly_credits": monthly }),
            );
            out.insert("pools".to_owned(), json!(plan.pools));
        }
        Section::Providers | Section::Pools => {}
    }
    debug_assert!(
        configuration.rows(section).iter().any(|other| other.id == row.id),
        "the row is of this section"
    );
    out
}

/// `fallback_on_failure` and `fallback_candidate` of a model.
pub(super) fn routing(model: &ConfigRow) -> Value {
    let metadata: Value =
        model.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let flag = |name: &str, default: bool| metadata["routing"][name].as_bool().unwrap_or(default);
    json!({
        "fallback_on_failure": flag("fallback_on_failure", false),
        "fallback_candidate": flag("fallback_candidate", true),
    })
}

fn cell_json(field: &Field, cell: &Cell) -> Value {
    match (cell, field.kind) {
        (Cell::Null, _) => Value::Null,
        (Cell::Whole(number), Kind::Flag) if *number == 0 || *number == 1 => (*number == 1).into(),
        (Cell::Whole(number), _) => (*number).into(),
        (Cell::Real(number), _) => json!(number),
        (Cell::Text(text), Kind::Prices | Kind::Features) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        (Cell::Text(text), _) => text.clone().into(),
    }
}
