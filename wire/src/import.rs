//! The import file, and any single row of configuration: parsed into checked cells, every problem
//! named with its row, its field and what would be right.
//!
//! One table of [`Field`]s per section says what may be written; the import, the admin API's PUT, the
//! console's forms and the export all go by it. What a row does not mention is not in its cells.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use forebay_engine::limits::Rate;
use forebay_engine::policy::{Invalid, Strategy};
use forebay_engine::{Capability, GroupKey, Priority, Weight};
use serde_json::{Map, Value};

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
        Self {
            row: row.into(),
            field: field.into(),
            remedy: remedy.into(),
        }
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

/// A part of the configuration, in the order in which rows can refer to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Who serves.
    Providers,
    /// Upstream credentials.
    Accounts,
    /// Logical models.
    Pools,
    /// Physical models.
    Models,
    /// Backend teams.
    Callers,
}

impl Section {
    /// Every section.
    pub const ALL: [Self; 5] = [
        Self::Providers,
        Self::Accounts,
        Self::Pools,
        Self::Models,
        Self::Callers,
    ];

    /// The name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::Accounts => "accounts",
            Self::Pools => "pools",
            Self::Models => "models",
            Self::Callers => "callers",
        }
    }

    /// The word for one row.
    pub const fn one(self) -> &'static str {
        match self {
            Self::Providers => "provider",
            Self::Accounts => "account",
            Self::Pools => "pool",
            Self::Models => "model",
            Self::Callers => "caller",
        }
    }

    /// The field that tells rows apart.
    pub const fn identity(self) -> &'static str {
        match self {
            Self::Providers => "key",
            Self::Accounts => "label",
            Self::Pools => "group_key",
            Self::Models | Self::Callers => "name",
        }
    }

    /// The fields that are columns of its table under the same name.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Providers => PROVIDER,
            Self::Accounts => ACCOUNT,
            Self::Pools => POOL,
            Self::Models => MODEL,
            Self::Callers => CALLER,
        }
    }

    /// Further fields, which are rows of other tables or need a look at them.
    const fn more(self) -> &'static [&'static str] {
        match self {
            Self::Accounts => &["account_key"],
            Self::Models => &["pool", "routing", "accounts"],
            Self::Callers => &["plan", "credits", "pools"],
            Self::Providers | Self::Pools => &[],
        }
    }
}

/// A field of a row.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in files, in the API, in forms and in its table.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
}

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text up to so many characters.
    Text(usize),
    /// The same, or none.
    OptionalText(usize),
    /// `http://…` or `https://…`.
    Url,
    /// The same, or none.
    OptionalUrl,
    /// Yes or no.
    Flag,
    /// A whole number between two.
    Whole(i64, i64),
    /// The same, or none.
    OptionalWhole(i64, i64),
    /// A number between two.
    Real(f64, f64),
    /// Requests a second, or none.
    OptionalRate,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A capability.
    Capability,
    /// A strategy that the engine knows.
    Strategy,
    /// A member's weight.
    Weight,
    /// A member's priority.
    Priority,
    /// An amount of at least 0.
    Money,
    /// The same, or none.
    OptionalMoney,
    /// Prices by unit.
    Prices,
    /// What a model can do.
    Features,
}

/// A checked value, as its column holds it.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// None.
    Null,
    /// A whole number or a flag.
    Whole(i64),
    /// A number.
    Real(f64),
    /// Text, money, or JSON.
    Text(String),
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind }
}

const DAY_MS: i64 = 86_400_000;
const MILLION: i64 = 1_000_000;

const PROVIDER: &[Field] = &[
    field("name", Kind::Text(128)),
    field(
        "protocol",
        Kind::Choice(&["openai", "volcengine_ark", "dashscope", "ollama"]),
    ),
    field("base_url", Kind::Url),
    field("proxy_url", Kind::OptionalUrl),
    field("tier", Kind::Choice(&["direct", "preferred", "other"])),
    field("region", Kind::OptionalText(64)),
    field("currency_rate", Kind::Money),
    field("allow_private_network", Kind::Flag),
    field("is_enabled", Kind::Flag),
];

const ACCOUNT: &[Field] = &[
    field("provider", Kind::Text(64)),
    field("max_rps", Kind::OptionalRate),
    field("max_tpm", Kind::OptionalWhole(1, i64::MAX)),
    field("max_concurrency", Kind::OptionalWhole(1, MILLION)),
    field("daily_limit", Kind::OptionalWhole(1, i64::MAX)),
    field("headroom", Kind::Real(0.0, 0.9)),
    field("region", Kind::OptionalText(64)),
    field("is_enabled", Kind::Flag),
];

const POOL: &[Field] = &[
    field("name", Kind::Text(128)),
    field("public_alias", Kind::OptionalText(128)),
    field("capability", Kind::Capability),
    field("strategy", Kind::Strategy),
    field("dynamic_weights", Kind::Flag),
    field("latency_target_ms", Kind::OptionalWhole(1, DAY_MS)),
    field("breaker_policy", Kind::Choice(&["consecutive", "error_rate"])),
    field("circuit_failure_threshold", Kind::Whole(1, 100_000)),
    field("circuit_recovery_seconds", Kind::Whole(1, 86_400)),
    field("recovery_backoff", Kind::Flag),
    field("error_rate_threshold", Kind::Real(0.0, 1.0)),
    field("error_rate_window_seconds", Kind::Whole(1, 86_400)),
    field("error_rate_min_calls", Kind::Whole(1, MILLION)),
    field("error_rate_open_seconds", Kind::Whole(1, 86_400)),
    field("half_open_probes", Kind::Whole(1, 10_000)),
    field("half_open_success_rate", Kind::Real(0.0, 1.0)),
    field("switch_first", Kind::Flag),
    field("retry_unknown", Kind::Flag),
    field("queue_timeout_ms", Kind::Whole(0, DAY_MS)),
    field("queue_max", Kind::OptionalWhole(0, MILLION)),
    field("first_packet_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("idle_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("content_timeout_ms", Kind::Whole(100, DAY_MS)),
    field("min_content_chars", Kind::Whole(0, MILLION)),
    field("fallback_template", Kind::OptionalText(65_536)),
    field("cache", Kind::Choice(&["off", "exact", "semantic"])),
    field("cache_embedding_pool", Kind::OptionalText(64)),
    field("cache_threshold", Kind::Real(0.0, 1.0)),
    field("cache_hit_price", Kind::Money),
    field("store_content", Kind::Flag),
    field("rehost_results", Kind::Flag),
    field("deep_thinking_model", Kind::OptionalText(128)),
    field("region", Kind::OptionalText(64)),
    field("price", Kind::Prices),
    field("budget_daily", Kind::OptionalMoney),
    field("is_active", Kind::Flag),
];

const MODEL: &[Field] = &[
    field("public_alias", Kind::OptionalText(128)),
    field("provider", Kind::Text(64)),
    field("base_url", Kind::OptionalUrl),
    field("upstream_model", Kind::Text(256)),
    field("capability", Kind::Capability),
    field("weight", Kind::Weight),
    field("priority", Kind::Priority),
    field("max_concurrency", Kind::OptionalWhole(1, MILLION)),
    field("is_active", Kind::Flag),
    field("features", Kind::Features),
    field("prices", Kind::Prices),
];

const CALLER: &[Field] = &[
    field("region", Kind::OptionalText(64)),
    field("is_enabled", Kind::Flag),
];

/// The units in which prices are given.
pub const PRICE_UNITS: [&str; 11] = [
    "per_request",
    "input_per_1m",
    "cached_input_per_1m",
    "cache_write_per_1m",
    "output_per_1m",
    "per_image",
    "per_audio_second",
    "per_video_second",
    "video_tokens_per_1m",
    "per_1k_characters",
    "per_rerank_unit",
];

const FLAG_FEATURES: [&str; 6] = [
    "stream",
    "tools",
    "structured",
    "thinking",
    "vision",
    "image_edit",
];
const COUNT_FEATURES: [&str; 2] = ["max_context", "max_output"];
const OTHER_FEATURES: [&str; 5] = ["max_references", "ratios", "resolutions", "durations", "voices"];

/// An upstream key on its way in. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key itself: for sealing, nothing else.
    pub fn expose(&self) -> &str {
        &self.0
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
        self.cells
            .iter()
            .find(|(column, _)| *column == name)
            .map(|(_, cell)| cell)
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
    let broken = |error: String| {
        vec![Problem::new(
            "",
            "",
            format!("this is neither YAML nor JSON: {error}"),
        )]
    };
    let mut file: Value = if text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(file) => file,
            Err(as_json) => serde_yaml_ng::from_str(text).map_err(|_| broken(as_json.to_string()))?,
        }
    } else {
        serde_yaml_ng::from_str(text).map_err(|error| broken(error.to_string()))?
    };
    let mut problems = Vec::new();
    expand(&mut file, "", environment, &mut problems);
    document(&file, problems)
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
    if problems.is_empty() {
        Ok(found)
    } else {
        Err(problems)
    }
}

fn document(file: &Value, mut problems: Vec<Problem>) -> Result<Document, Vec<Problem>> {
    let mut document = Document::default();
    let empty = Map::new();
    let file = match file {
        Value::Object(file) => file,
        Value::Null => &empty,
        _ => {
            problems.push(Problem::new(
                "",
                "",
                "the file must be a map of providers, accounts, pools, …",
            ));
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
                    problems.push(Problem::new(
                        &item.row,
                        section.identity(),
                        "is in the file twice",
                    ));
                }
                document.items.push(item);
            }
        }
    }
    if let Some(settings) = file.get("settings") {
        flatten(settings, String::new(), &mut document.settings, &mut problems);
    }
    if problems.is_empty() {
        Ok(document)
    } else {
        Err(problems)
    }
}

fn expand(
    value: &mut Value,
    at: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
) {
    match value {
        Value::String(text) => {
            let mut expanded = String::new();
            let mut rest = text.as_str();
            while let Some((before, after)) = rest.split_once("${") {
                let Some((name, after)) = after.split_once('}') else {
                    break;
                };
                expanded.push_str(before);
                match environment(name) {
                    Some(value) => expanded.push_str(&value),
                    None => problems.push(Problem::new(
                        at,
                        "",
                        format!("the environment has no {name}; set it"),
                    )),
                }
                rest = after;
            }
            expanded.push_str(rest);
            *text = expanded;
        }
        Value::Array(rows) => {
            for (n, row) in rows.iter_mut().enumerate() {
                expand(row, &format!("{at}[{n}]"), environment, problems);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                expand(value, &at, environment, problems);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn item(
    section: Section,
    name: Option<&str>,
    row: String,
    value: &Value,
    problems: &mut Vec<Problem>,
) -> Option<Item> {
    let mut reader = Reader { row, problems };
    let Value::Object(fields) = value else {
        reader.refuse("", "must be a map of fields");
        return None;
    };
    for field in fields.keys() {
        let known = field == section.identity()
            || section.more().contains(&field.as_str())
            || section.fields().iter().any(|known| known.name == field);
        if !known {
            let mut names: Vec<&str> = section.fields().iter().map(|field| field.name).collect();
            names.extend(section.more());
            let close = names
                .iter()
                .min_by_key(|name| distance(name, field))
                .copied()
                .unwrap_or_default();
            reader.refuse(field, &format!("is unknown; did you mean {close}?"));
        }
    }
    let name = reader.identity(section, name, fields)?;
    let mut item = Item {
        section,
        name,
        row: reader.row.clone(),
        cells: Vec::new(),
        account_key: None,
        pool: None,
        routing: None,
        accounts: None,
        concurrent_tasks: None,
        monthly_credits: None,
        credits: None,
        pools: None,
    };
    for field in section.fields() {
        if let Some(value) = fields.get(field.name)
            && let Some(cell) = reader.read(field.name, |value| cell(field.kind, value), value)
        {
            item.cells.push((field.name, cell));
        }
    }
    match section {
        Section::Accounts => {
            item.account_key = fields
                .get("account_key")
                .and_then(|value| reader.read("account_key", key, value))
                .flatten();
        }
        Section::Models => reader.model(fields, &mut item),
        Section::Callers => reader.caller(fields, &mut item),
        Section::Providers | Section::Pools => {}
    }
    Some(item)
}

/// Reads the fields of one row and collects its problems.
struct Reader<'a> {
    row: String,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn refuse(&mut self, field: &str, remedy: &str) {
        self.problems.push(Problem::new(&self.row, field, remedy));
    }

    fn read<T>(
        &mut self,
        field: &str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
        value: &Value,
    ) -> Option<T> {
        parse(value).map_err(|remedy| self.refuse(field, &remedy)).ok()
    }

    fn identity(
        &mut self,
        section: Section,
        given: Option<&str>,
        fields: &Map<String, Value>,
    ) -> Option<String> {
        let field = section.identity();
        let written = fields.get(field).map(|value| value.as_str().unwrap_or_default());
        let name = match (given, written) {
            (Some(given), Some(written)) if given != written => {
                self.refuse(field, &format!("must be {given}, or be left out"));
                return None;
            }
            (Some(given), _) => given,
            (None, Some(written)) => written,
            (None, None) => {
                self.refuse(field, "is missing; every row needs it");
                return None;
            }
        };
        let checked = match section {
            Section::Providers | Section::Pools => {
                name.parse::<GroupKey>().map(drop).map_err(|error| error.0)
            }
            _ if name.trim() != name || name.is_empty() || name.chars().count() > 128 => {
                Err("must be 1 to 128 characters, without spaces around them")
            }
            _ if name.chars().any(char::is_control) => Err("must not have control characters"),
            _ => Ok(()),
        };
        checked.map_err(|remedy| self.refuse(field, remedy)).ok()?;
        Some(name.to_owned())
    }

    fn model(&mut self, fields: &Map<String, Value>, item: &mut Item) {
        item.pool = fields
            .get("pool")
            .and_then(|value| self.read("pool", optional_text, value));
        item.routing = fields
            .get("routing")
            .and_then(|value| self.read("routing", routing, value));
        let Some(value) = fields.get("accounts") else {
            return;
        };
        let Value::Array(rows) = value else {
            self.refuse("accounts", "must be a list of {label, priority}");
            return;
        };
        let mut bindings: Vec<BindingItem> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            match binding(row) {
                Ok(one) if bindings.iter().any(|other| other.label == one.label) => {
                    self.refuse(&format!("accounts[{n}].label"), "is in the list twice");
                }
                Ok(one) => bindings.push(one),
                Err((field, remedy)) => self.refuse(&format!("accounts[{n}].{field}"), &remedy),
            }
        }
        item.accounts = Some(bindings);
    }

    fn caller(&mut self, fields: &Map<String, Value>, item: &mut Item) {
        if let Some(plan) = fields.get("plan") {
            match plan {
                Value::Object(plan) => {
                    for (name, value) in plan {
                        let field = format!("plan.{name}");
                        match name.as_str() {
                            "concurrent_tasks" => {
                                item.concurrent_tasks = self.read(&field, |v| whole(v, 1, MILLION), value);
                            }
                            "monthly_credits" => {
                                item.monthly_credits = self.read(&field, money, value);
                            }
                            _ => self
                                .refuse(&field, "is unknown; a plan has concurrent_tasks, monthly_credits"),
                        }
                    }
                }
                _ => self.refuse("plan", "must be a map: {concurrent_tasks: 10}"),
            }
        }
        item.credits = fields
            .get("credits")
            .and_then(|value| self.read("credits", money, value));
        item.pools = fields.get("pools").and_then(|value| {
            self.read(
                "pools",
                |value| {
                    let keys = value
                        .as_array()
                        .ok_or("must be a list of pool keys; [] = every pool")?;
                    keys.iter()
                        .map(|key| {
                            let key = key
                                .as_str()
                                .ok_or("must be a list of pool keys; [] = every pool")?;
                            key.parse::<GroupKey>()
                                .map(|key| key.to_string())
                                .map_err(|error| error.to_string())
                        })
                        .collect::<Result<Vec<_>, String>>()
                },
                value,
            )
        });
    }
}

fn cell(kind: Kind, value: &Value) -> Result<Cell, String> {
    let none = value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
    match kind {
        Kind::OptionalText(_)
        | Kind::OptionalUrl
        | Kind::OptionalWhole(..)
        | Kind::OptionalRate
        | Kind::OptionalMoney
            if none =>
        {
            Ok(Cell::Null)
        }
        Kind::Text(max) | Kind::OptionalText(max) => text(value, max).map(Cell::Text),
        Kind::Url | Kind::OptionalUrl => url(value).map(Cell::Text),
        Kind::Flag => flag(value).map(|flag| Cell::Whole(flag.into())),
        Kind::Whole(min, max) | Kind::OptionalWhole(min, max) => whole(value, min, max).map(Cell::Whole),
        Kind::Real(min, max) => real(value, min, max).map(Cell::Real),
        Kind::OptionalRate => {
            let rate = real(value, 0.0, 1e9)?;
            Rate::try_new(rate, 0.0).map_err(|error| error.to_string())?;
            Ok(Cell::Real(rate))
        }
        Kind::Choice(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(Cell::Text(word.to_owned())),
            _ => Err(format!("must be one of {}", words.join(", "))),
        },
        Kind::Capability => word::<Capability>(value),
        Kind::Strategy => word::<Strategy>(value),
        Kind::Weight => {
            let weight = whole(value, i64::MIN, i64::MAX)?;
            Weight::try_new(weight).map_err(|error| error.to_string())?;
            Ok(Cell::Whole(weight))
        }
        Kind::Priority => priority(value).map(|priority| Cell::Whole(priority.get().into())),
        Kind::Money | Kind::OptionalMoney => money(value).map(|amount| Cell::Text(decimal(amount))),
        Kind::Prices => prices(value).map(Cell::Text),
        Kind::Features => features(value).map(Cell::Text),
    }
}

fn word<T: std::str::FromStr<Err = Invalid>>(value: &Value) -> Result<Cell, String> {
    let word = value.as_str().unwrap_or_default();
    word.parse::<T>().map_err(|error| error.to_string())?;
    Ok(Cell::Text(word.to_owned()))
}

fn text(value: &Value, max: usize) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        // `name: 42` in YAML is a number, and what was meant is clear.
        Value::Number(number) => number.to_string(),
        _ => return Err("must be text".into()),
    };
    if text.chars().count() > max {
        return Err(format!("must be at most {max} characters"));
    }
    if text
        .chars()
        .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r'))
    {
        return Err("must not have control characters".into());
    }
    Ok(text)
}

fn optional_text(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        value => text(value, 128).map(Some),
    }
}

fn url(value: &Value) -> Result<String, String> {
    let text = text(value, 2_048)?;
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let host = rest
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    if host.is_empty() || host.starts_with(':') || text.contains(char::is_whitespace) {
        return Err("must be http://host… or https://host…".into());
    }
    if host.contains('@') {
        return Err("must not hold a name or password; use an account".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(false),
        Value::Number(number) if number.as_i64() == Some(1) => Ok(true),
        _ => Err("must be true or false".into()),
    }
}

fn whole(value: &Value, min: i64, max: i64) -> Result<i64, String> {
    let number = value
        .as_i64()
        .or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ if max == i64::MAX && min == i64::MIN => Err("must be a whole number".into()),
        _ if max == i64::MAX => Err(format!("must be a whole number of at least {min}")),
        _ => Err(format!("must be a whole number between {min} and {max}")),
    }
}

fn real(value: &Value, min: f64, max: f64) -> Result<f64, String> {
    let number = value
        .as_f64()
        .or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a number between {min} and {max}")),
    }
}

fn priority(value: &Value) -> Result<Priority, String> {
    Priority::try_new(whole(value, i64::MIN, i64::MAX)?).map_err(|error| error.to_string())
}

/// An amount of at least 0, in micro-units.
fn money(value: &Value) -> Result<i64, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err("must be a decimal such as \"0.50\"".into()),
    };
    match micros(&text) {
        Ok(amount) if amount >= 0 => Ok(amount),
        Ok(_) => Err("must be at least 0".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn prices(value: &Value) -> Result<String, String> {
    let Value::Object(given) = value else {
        return if value.is_null() {
            Ok("{}".into())
        } else {
            Err("must be a map of prices by unit".into())
        };
    };
    if let Some(unit) = given.keys().find(|unit| !PRICE_UNITS.contains(&unit.as_str())) {
        return Err(format!("{unit} is no unit; units are {}", PRICE_UNITS.join(", ")));
    }
    let mut prices = Map::new();
    for unit in PRICE_UNITS {
        if let Some(price) = given.get(unit) {
            let price = money(price).map_err(|remedy| format!("{unit} {remedy}"))?;
            prices.insert(unit.to_owned(), decimal(price).into());
        }
    }
    Ok(Value::Object(prices).to_string())
}

fn features(value: &Value) -> Result<String, String> {
    let Value::Object(given) = value else {
        return if value.is_null() {
            Ok("{}".into())
        } else {
            Err("must be a map of features".into())
        };
    };
    let mut features = Map::new();
    for (name, value) in given {
        let checked = if FLAG_FEATURES.contains(&name.as_str()) {
            flag(value).map(Value::Bool)
        } else if COUNT_FEATURES.contains(&name.as_str()) {
            whole(value, 1, i64::MAX).map(Value::from)
        } else if OTHER_FEATURES.contains(&name.as_str()) {
            Ok(value.clone())
        } else {
            let known = [&FLAG_FEATURES[..], &COUNT_FEATURES[..], &OTHER_FEATURES[..]]
                .concat()
                .join(", ");
            return Err(format!("{name} is no feature; features are {known}"));
        };
        features.insert(
            name.clone(),
            checked.map_err(|remedy| format!("{name} {remedy}"))?,
        );
    }
    features.sort_keys();
    Ok(Value::Object(features).to_string())
}

fn routing(value: &Value) -> Result<BTreeMap<String, bool>, String> {
    let Value::Object(given) = value else {
        return Err("must be a map".into());
    };
    given
        .iter()
        .map(|(name, value)| match name.as_str() {
            "fallback_on_failure" | "fallback_candidate" => flag(value)
                .map(|flag| (name.clone(), flag))
                .map_err(|remedy| format!("{name} {remedy}")),
            _ => Err(format!(
                "{name} is unknown; it has fallback_on_failure, fallback_candidate"
            )),
        })
        .collect()
}

fn binding(row: &Value) -> Result<BindingItem, (&'static str, String)> {
    let Value::Object(fields) = row else {
        return Err(("label", "must be a map: {label, priority}".into()));
    };
    if fields.keys().any(|name| name != "label" && name != "priority") {
        return Err(("label", "a binding has label and priority only".into()));
    }
    let label = fields
        .get("label")
        .and_then(Value::as_str)
        .ok_or(("label", "is missing".to_owned()))?;
    let priority = match fields.get("priority") {
        None | Some(Value::Null) => Priority::default(),
        Some(value) => priority(value).map_err(|remedy| ("priority", remedy))?,
    };
    Ok(BindingItem {
        label: label.to_owned(),
        priority,
    })
}

/// `None` when the key is masked: keep the one that is there.
fn key(value: &Value) -> Result<Option<Key>, String> {
    let Value::String(key) = value else {
        return Err("must be text".into());
    };
    if key.starts_with(MASK) {
        return Ok(None);
    }
    if key.trim() != key || key.len() > 8_192 || key.chars().any(char::is_control) {
        return Err("must be at most 8192 characters, without spaces around them".into());
    }
    Ok(Some(Key(key.clone())))
}

/// What an export shows of a key: never more than its last four characters, and nothing of a short one.
pub fn mask(key: &str) -> String {
    let count = key.chars().count();
    let last: String = if count >= 12 {
        key.chars().skip(count - 4).collect()
    } else {
        String::new()
    };
    format!("{MASK}{last}")
}

/// What a setting may hold, by its dotted name.
fn setting(name: &str, value: &Value) -> Result<Value, String> {
    if value.is_null() {
        return known_setting(name)
            .then_some(Value::Null)
            .ok_or_else(|| "is unknown".to_owned());
    }
    let parts: Vec<&str> = name.split('.').collect();
    let number = |min, max| whole(value, min, max).map(Value::from);
    match parts.as_slice() {
        ["default_pool", capability] if capability.parse::<Capability>().is_ok() => {
            let key = value.as_str().unwrap_or_default();
            key.parse::<GroupKey>()
                .map(|key| key.as_str().into())
                .map_err(|error| error.to_string())
        }
        ["routing", "max_models"] => number(1, 3),
        ["routing", "max_requests"] => number(1, 5),
        ["routing", "retry_budget"] => real(value, 0.0, 10.0).map(Value::from),
        ["routing", capability, field] if capability.parse::<Capability>().is_ok() => match *field {
            "retries" => number(0, 4),
            "attempt_ms" | "stream_attempt_ms" | "total_ms" => number(100, DAY_MS),
            "waits_ms" => {
                let waits = value.as_array().ok_or("must be a list of milliseconds")?;
                let waits = waits
                    .iter()
                    .map(|wait| whole(wait, 0, 3_600_000).map(Value::from));
                waits.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            _ => Err("is unknown; it has retries, waits_ms, attempt_ms, stream_attempt_ms, total_ms".into()),
        },
        ["cooldown", field] if COOLDOWNS.contains(field) => number(0, 604_800),
        ["connect_timeout_ms"] => number(10, 600_000),
        ["pool_idle_per_host"] => number(0, 100_000),
        ["body_limit"] => number(1_024, 1 << 30),
        ["drain_seconds" | "drain_delay_seconds"] => number(0, 3_600),
        ["task_types", _] => {
            let fields = value
                .as_object()
                .ok_or("must be a map: {capability, operation}")?;
            for (field, value) in fields {
                match field.as_str() {
                    "capability" => word::<Capability>(value).map(drop)?,
                    "operation" => text(value, 64).map(drop)?,
                    _ => return Err(format!("{field} is unknown; it has capability, operation")),
                }
            }
            Ok(value.clone())
        }
        _ => Err("is unknown".into()),
    }
}

const COOLDOWNS: [&str; 6] = [
    "rate_limited_seconds",
    "auth_seconds",
    "auth_max_seconds",
    "connect_seconds",
    "quota_seconds",
    "misconfigured_seconds",
];

fn known_setting(name: &str) -> bool {
    // A setting is known if some value of it is accepted: numbers, lists, a key and a map cover all.
    [
        Value::from(1),
        Value::from(1_024),
        Value::from("a"),
        Value::Array(Vec::new()),
        Value::Object(Map::new()),
    ]
    .iter()
    .any(|value| setting(name, value).is_ok())
}

fn flatten(value: &Value, at: String, found: &mut BTreeMap<String, Value>, problems: &mut Vec<Problem>) {
    let is_map_setting = at
        .strip_prefix("task_types.")
        .is_some_and(|rest| !rest.is_empty());
    match value {
        Value::Object(fields) if !is_map_setting => {
            for (name, value) in fields {
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                flatten(value, at, found, problems);
            }
        }
        _ if at.is_empty() => problems.push(Problem::new("settings", "", "must be a map")),
        value => match setting(&at, value) {
            Ok(value) => drop(found.insert(at, value)),
            Err(remedy) => problems.push(Problem::new("settings", at, remedy)),
        },
    }
}

/// Reads a decimal with up to six places as micro-units, without a float in between.
///
/// # Errors
/// When it is none, or does not fit.
pub fn micros(text: &str) -> Result<i64, Invalid> {
    const WRONG: Invalid = Invalid("must be a decimal with at most six places, such as \"0.50\"");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !is_number(whole) || !is_number(fraction) {
        return Err(WRONG);
    }
    let mut amount: i64 = whole.parse().map_err(|_| WRONG)?;
    for place in 0..6 {
        let digit = fraction
            .as_bytes()
            .get(place)
            .map_or(0, |byte| i64::from(byte - b'0'));
        amount = amount
            .checked_mul(10)
            .and_then(|amount| amount.checked_add(digit))
            .ok_or(WRONG)?;
    }
    Ok(if negative { -amount } else { amount })
}

/// Micro-units as short as they can be said, with two decimals at least: `0.50`.
pub fn decimal(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let amount = micros.unsigned_abs();
    let mut fraction = format!("{:06}", amount % 1_000_000);
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{sign}{}.{fraction}", amount / 1_000_000)
}

/// How many letters differ: only for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = substituted.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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
        assert_eq!(
            account.account_key.as_ref().map(Key::expose),
            Some("sk-secret-1234")
        );
        assert_eq!(account.cell("max_rps"), Some(&Cell::Real(50.0)));
        assert_eq!(
            pool.text("price"),
            Some(r#"{"input_per_1m":"0.50","output_per_1m":"1.50"}"#)
        );
        assert_eq!(model.pool, Some(Some("main_text".into())));
        assert_eq!(model.cell("weight"), Some(&Cell::Whole(6)));
        assert_eq!(model.accounts.as_ref().map(Vec::len), Some(1));
        assert_eq!(
            (caller.concurrent_tasks, caller.credits),
            (Some(10), Some(100_000_000))
        );
        assert_eq!(
            document.settings.get("default_pool.text"),
            Some(&"main_text".into())
        );
        assert!(
            !format!("{document:?}").contains("sk-secret"),
            "no key in any Debug"
        );
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
            ["accounts[0].account_key: the environment has no NOPE; set it"]
        );
        assert_eq!(problems("pols: []").len(), 1);
        assert_eq!(
            problems("pools: [{group_key: a}, {group_key: a}]"),
            ["pools[1] (a): group_key: is in the file twice"]
        );
        assert_eq!(
            problems("settings: {routing: {max_models: 9}, nonsense: 1}").len(),
            2
        );
    }

    #[test]
    fn a_masked_key_means_keep() {
        let masked = mask("sk-secret-1234");
        assert_eq!(masked, "****1234");
        assert_eq!(mask("short"), MASK);
        let row = serde_json::json!({ "account_key": masked });
        let item = parse_row(Section::Accounts, "a", &row).expect("a masked key is no problem");
        assert_eq!(item.account_key, None);
    }

    #[test]
    fn null_clears_what_may_be_empty_and_nothing_else() {
        let row = serde_json::json!({ "max_concurrency": null, "public_alias": "" });
        let item = parse_row(Section::Models, "m", &row).expect("both may be empty");
        assert_eq!(
            item.cells,
            [("public_alias", Cell::Null), ("max_concurrency", Cell::Null)]
        );
        assert!(parse_row(Section::Models, "m", &serde_json::json!({ "weight": null })).is_err());
        assert!(parse_row(Section::Models, "m", &serde_json::json!({ "name": "other" })).is_err());
    }

    #[test]
    fn settings_may_be_nested_or_dotted() {
        let nested =
            serde_json::json!({ "routing": { "text": { "waits_ms": [1000] } }, "cooldown.auth_seconds": 5 });
        let settings = parse_settings(&nested).expect("both are right");
        assert_eq!(
            settings.keys().collect::<Vec<_>>(),
            ["cooldown.auth_seconds", "routing.text.waits_ms"]
        );
        assert!(parse_settings(&serde_json::json!({ "routing.text.retries": null })).is_ok());
        assert!(parse_settings(&serde_json::json!({ "routing.txt.retries": null })).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics_the_parser(text in ".{0,400}") {
            let _ = parse(&text, &environment);
        }

        #[test]
        fn no_row_panics_the_parser(
            field in prop::sample::select(POOL.iter().map(|field| field.name).collect::<Vec<_>>()),
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
