//! The import file, and any single row of configuration: parsed into checked cells, every problem
//! named with its row, its field and what would be right.
//!
//! One table of [`Field`]s per section says what may be written; the import, the admin API's PUT, the
//! console's forms and the export all go by it. What a row does not mention is not in its cells.

mod features;
mod fields;
mod row;
mod settings;
mod strict;
mod values;
mod variables;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use forebay_engine::Priority;
use serde_json::Value;

pub use fields::{Cell, Field, Kind, PRICE_UNITS, Section};
pub use values::{decimal, mask, micros};

use row::item;
use settings::flatten;
use variables::expand;

/// What a masked key begins with; a key like that means "keep the one you have".
pub const MASK: &str = "****";

/// A field of a row that can't be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `models[2] (sim-fast)`, or `model sim-fast` for a single row.
    pub row: String,
    /// The field's name.
    pub field: String,
    /// What would be right.
    pub remedy: String,
}

impl Problem {
    /// A problem with one field of a row.
    pub fn new(row: impl Into<String>, field: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { row: row.into(), field: field.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.row.as_str(), self.field.as_str()) {
            ("", "") => f.write_str(&self.remedy),
            ("", field) => write!(f, "{field}: {}", self.remedy),
            (row, "") => write!(f, "{row}: {}", self.remedy),
            (row, field) => write!(f, "{row}: {field}: {}", self.remedy),
        }
    }
}

/// An upstream key on its way in. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key itself: for sealing, nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// It is a mask: the key that is there is meant, and kept.
    pub fn is_masked(&self) -> bool {
        self.0.starts_with(MASK)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A binding of a model to an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingItem {
    /// The account.
    pub label: String,
    /// Its place among the model's accounts.
    pub priority: Priority,
}

/// A row, as far as it is mentioned.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Which kind of row.
    pub section: Section,
    /// What tells it apart.
    pub name: String,
    /// How problems name it.
    pub row: String,
    /// Columns and their new values.
    pub cells: Vec<(&'static str, Cell)>,
    /// Account: its new key; a masked one is not here.
    pub account_key: Option<Key>,
    /// Model: all its legacy keys, in the order of their use. A masked one ([`Key::is_masked`]) stands
    /// for the key that is there and has this mask.
    pub api_keys: Option<Vec<Key>>,
    /// Model: its pool, or that it is to have none.
    pub pool: Option<Option<String>>,
    /// Model: `fallback_on_failure`, `fallback_candidate`.
    pub routing: Option<BTreeMap<String, bool>>,
    /// Model: all its bindings.
    pub accounts: Option<Vec<BindingItem>>,
    /// Caller: tasks under way at once.
    pub concurrent_tasks: Option<i64>,
    /// Caller: micro-units a month, for plans that renew.
    pub monthly_credits: Option<i64>,
    /// Caller: micro-units given when it is created.
    pub credits: Option<i64>,
    /// Caller: the pools it may use; none = all.
    pub pools: Option<Vec<String>>,
}

impl Item {
    /// The value of a column, if the row mentions it.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|(column, _)| *column == name).map(|(_, cell)| cell)
    }

    /// The text of a column, if the row mentions it.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.cell(name) {
            Some(Cell::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// A whole import file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Rows, in the order of [`Section::ALL`].
    pub items: Vec<Item>,
    /// Settings by dotted name; null = back to the default.
    pub settings: BTreeMap<String, Value>,
}

/// Parses a file, YAML or JSON. `environment` gives the value of `${NAME}`.
///
/// # Errors
/// Everything that is wrong with it, not only the first.
pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Document, Vec<Problem>> {
    let (mut file, repeated) = strict::read(text)
        .map_err(|error| vec![Problem::new("", "", format!("this is neither YAML nor JSON: {error}"))])?;
    let mut problems: Vec<Problem> =
        repeated.iter().map(|at| problem_at(at, "is there twice; keep one")).collect();
    expand(&mut file, "", environment, &mut problems);
    document(&file, problems)
}

/// A problem with the field at `models[0].features.stream`.
fn problem_at(at: &str, remedy: impl Into<String>) -> Problem {
    let (row, field) = match at.split_once('.') {
        Some((row, field)) if row.ends_with(']') => (row, field),
        _ => ("", at),
    };
    Problem::new(row, field, remedy)
}

/// Checks a file that is a JSON value already; `${…}` in it is text like any other.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_value(file: &Value) -> Result<Document, Vec<Problem>> {
    document(file, Vec::new())
}

/// Checks a single row. `name` tells it apart; the row may repeat it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_row(section: Section, name: &str, row: &Value) -> Result<Item, Vec<Problem>> {
    let mut problems = Vec::new();
    let label = format!("{} {name}", section.one());
    let item = item(section, Some(name), label, row, &mut problems);
    item.filter(|_| problems.is_empty()).ok_or(problems)
}

/// Checks settings, nested or with dotted names.
///
/// # Errors
/// Everything that is wrong with them.
pub fn parse_settings(settings: &Value) -> Result<BTreeMap<String, Value>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut found = BTreeMap::new();
    flatten(settings, String::new(), &mut found, &mut problems);
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn document(file: &Value, mut problems: Vec<Problem>) -> Result<Document, Vec<Problem>> {
    let mut document = Document::default();
    let file = match file {
        Value::Object(file) => file,
        Value::Null => {
            problems.push(Problem::new("", "", "the file is empty"));
            return Err(problems);
        }
        _ => {
            problems.push(Problem::new("", "", "the file must be a map of providers, accounts, pools, …"));
            return Err(problems);
        }
    };
    for name in file.keys() {
        if name != "settings" && !Section::ALL.iter().any(|section| section.as_str() == name) {
            let known = "is unknown; a file has providers, accounts, pools, models, callers, settings";
            problems.push(Problem::new("", name, known));
        }
    }
    for section in Section::ALL {
        let rows = match file.get(section.as_str()) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(rows)) => rows,
            Some(_) => {
                problems.push(Problem::new("", section.as_str(), "must be a list"));
                continue;
            }
        };
        let mut names = HashSet::new();
        for (n, row) in rows.iter().enumerate() {
            let name = row.get(section.identity()).and_then(Value::as_str);
            let label = match name {
                Some(name) => format!("{}[{n}] ({name})", section.as_str()),
                None => format!("{}[{n}]", section.as_str()),
            };
            if let Some(item) = item(section, None, label, row, &mut problems) {
                if !names.insert(item.name.clone()) {
                    problems.push(Problem::new(&item.row, section.identity(), "is in the file twice"));
                }
                document.items.push(item);
            }
        }
    }
    if let Some(settings) = file.get("settings") {
        flatten(settings, String::new(), &mut document.settings, &mut problems);
    }
    if problems.is_empty() { Ok(document) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::Strategy;

    use super::*;

    const FILE: &str = r#"
providers:
  - {key: sim, name: Simulator, protocol: openai, base_url: "http://127.0.0.1:9100/v1/", tier: other, allow_private_network: true}
accounts:
  - {label: sim-a, provider: sim, account_key: "${SIM_KEY}", max_rps: 50, max_concurrency: 20, daily_limit: 100000, region: cn-beijing}
pools:
  - {group_key: main_text, name: Main text, capability: text, strategy: weighted_random,
     circuit_failure_threshold: 5, circuit_recovery_seconds: 60,
     price: {input_per_1m: "0.50", output_per_1m: 1.5}}
models:
  - {name: sim-fast, provider: sim, upstream_model: fast, capability: text, pool: main_text, weight: 6, priority: 0,
     max_concurrency: 20, features: {stream: true, thinking: false, max_context: 128000},
     routing: {fallback_on_failure: false, fallback_candidate: true},
     prices: {input_per_1m: "0.10", output_per_1m: "0.30"}, accounts: [{label: sim-a, priority: 0}]}
callers:
  - {name: team-a, plan: {concurrent_tasks: 10}, credits: "100", pools: []}
settings: {default_pool: {text: main_text}}
"#;

    fn environment(name: &str) -> Option<String> {
        (name == "SIM_KEY").then(|| "sk-secret-1234".to_owned())
    }

    fn problems(text: &str) -> Vec<String> {
        let problems = parse(text, &environment).expect_err("there is a problem");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_example_of_the_contract_is_understood() {
        let document = parse(FILE, &environment).expect("the example is right");
        let [provider, account, pool, model, caller] = document.items.as_slice() else {
            panic!("one row a section: {document:?}");
        };
        assert_eq!(provider.text("base_url"), Some("http://127.0.0.1:9100/v1"));
        assert_eq!(account.account_key.as_ref().map(Key::expose), Some("sk-secret-1234"));
        assert_eq!(account.cell("max_rps"), Some(&Cell::Real(50.0)));
        assert_eq!(pool.text("price"), Some(r#"{"input_per_1m":"0.50","output_per_1m":"1.50"}"#));
        assert_eq!(model.pool, Some(Some("main_text".into())));
        assert_eq!(model.cell("weight"), Some(&Cell::Whole(6)));
        assert_eq!(model.accounts.as_ref().map(Vec::len), Some(1));
        assert_eq!((caller.concurrent_tasks, caller.credits), (Some(10), Some(100_000_000)));
        assert_eq!(document.settings.get("default_pool.text"), Some(&"main_text".into()));
        assert!(!format!("{document:?}").contains("sk-secret"), "no key in any Debug");
    }

    #[test]
    fn every_problem_names_its_row_its_field_and_a_remedy() {
        assert_eq!(
            problems("models: [{name: a, wieght: 1}, {name: b, weight: 0, capability: txt}, {weight: 1}]"),
            [
                "models[0] (a): wieght: is unknown; did you mean weight?",
                "models[1] (b): capability: must be one of text, image, audio, video, embedding, rerank, moderation, speech2text",
                "models[1] (b): weight: must be between 1 and 1000000; to give a model no traffic, set is_active to false",
                "models[2]: name: is missing; every row needs it",
            ]
        );
        assert_eq!(
            problems("accounts: [{label: a, account_key: \"${NOPE}\"}]"),
            ["accounts[0]: account_key: the environment has no NOPE; set it"]
        );
        assert_eq!(problems("pols: []").len(), 1);
        assert_eq!(
            problems("pools: [{group_key: a}, {group_key: a}]"),
            ["pools[1] (a): group_key: is in the file twice"]
        );
        assert_eq!(problems("settings: {routing: {max_models: 9}, nonsense: 1}").len(), 2);
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_by_name() {
        let yaml = "models:\n  - name: a\n    weight: 1\n    features: {stream: true, stream: false}\n    weight: 2\n";
        let twice = [
            "models[0]: features.stream: is there twice; keep one",
            "models[0]: weight: is there twice; keep one",
        ];
        assert_eq!(problems(yaml), twice);
        let json = r#"{"models": [{"name": "a", "weight": 1, "features": {"stream": true, "stream": false}, "weight": 2}]}"#;
        assert_eq!(problems(json), twice);
        assert_eq!(problems("pools: []\nmodels: []\npools: []"), ["pools: is there twice; keep one"]);
        assert_eq!(
            problems("settings: {drain_seconds: 1, drain_seconds: 2}"),
            ["settings.drain_seconds: is there twice; keep one"]
        );
    }

    #[test]
    fn null_clears_what_may_be_empty_and_nothing_else() {
        let row = serde_json::json!({ "max_concurrency": null, "public_alias": "" });
        let item = parse_row(Section::Models, "m", &row).expect("both may be empty");
        assert_eq!(item.cells, [("public_alias", Cell::Null), ("max_concurrency", Cell::Null)]);
        assert!(parse_row(Section::Models, "m", &serde_json::json!({ "weight": null })).is_err());
        assert!(parse_row(Section::Models, "m", &serde_json::json!({ "name": "other" })).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in ".{0,400}") {
            let _ = parse(&text, &environment);
        }

        #[test]
        fn no_row_panics_the_parser(
            field in prop::sample::select(Section::Pools.fields().iter().map(|field| field.name).collect::<Vec<_>>()),
            value in prop_oneof![
                any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from),
                ".{0,20}".prop_map(Value::from), Just(Value::Null), Just(Value::Array(vec![])),
                any::<bool>().prop_map(Value::from), Just(serde_json::json!({ "per_request": "1" })),
            ],
        ) {
            let row = serde_json::json!({ field: value });
            if let Ok(item) = parse_row(Section::Pools, "p", &row) {
                prop_assert_eq!(item.cells.len(), 1);
            }
        }

        #[test]
        fn money_is_read_as_it_was_said(amount in any::<i64>()) {
            prop_assert_eq!(micros(&decimal(amount)).ok(), (amount != i64::MIN).then_some(amount));
        }
    }
}
