//! One row: its known fields read, its problems collected.

use forebay_engine::GroupKey;
use serde_json::{Map, Value};

use super::features::Fault;
use super::fields::{MILLION, Section};
use super::values::{binding, cell, key, money, optional_text, routing, whole};
use super::{BindingItem, Item, Key, Problem};

/// Reads a row; `name` tells it apart where the row itself need not.
pub(super) fn item(
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
            let close = names.iter().min_by_key(|name| distance(name, field)).copied().unwrap_or_default();
            reader.refuse(field, &format!("is unknown; did you mean {close}?"));
        }
    }
    // Without one the row is not taken, but what else is wrong with it is still said.
    let name = reader.identity(section, name, fields);
    let mut item = Item {
        section,
        name: String::new(),
        row: reader.row.clone(),
        cells: Vec::new(),
        account_key: None,
        api_keys: None,
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
            && let Some(cell) = reader.read_parts(field.name, |value| cell(field.kind, value), value)
        {
            item.cells.push((field.name, cell));
        }
    }
    match section {
        Section::Accounts => {
            let key = fields.get("account_key").and_then(|value| reader.read("account_key", key, value));
            item.account_key = key.filter(|key| !key.is_masked());
        }
        Section::Models => reader.model(fields, &mut item),
        Section::Callers => reader.caller(fields, &mut item),
        Section::Providers | Section::Pools => {}
    }
    item.name = name?;
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

    /// As [`Self::read`], of a field whose parts have names of their own.
    fn read_parts<T>(
        &mut self,
        field: &str,
        parse: impl FnOnce(&Value) -> Result<T, Vec<Fault>>,
        value: &Value,
    ) -> Option<T> {
        let refuse = |faults: Vec<Fault>| {
            for (part, remedy) in faults {
                self.refuse(&within(field, &part), &remedy);
            }
        };
        parse(value).map_err(refuse).ok()
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
        item.pool = fields.get("pool").and_then(|value| self.read("pool", optional_text, value));
        item.routing = fields.get("routing").and_then(|value| self.read_parts("routing", routing, value));
        item.api_keys = fields.get("api_keys").map(|value| self.api_keys(value));
        let Some(value) = fields.get("accounts") else {
            return;
        };
        let Value::Array(rows) = value else {
            self.refuse("accounts", "must be a list of {label, priority}");
            return;
        };
        let mut bindings: Vec<BindingItem> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            match self.read_parts(&format!("accounts[{n}]"), binding, row) {
                Some(one) if bindings.iter().any(|other| other.label == one.label) => {
                    self.refuse(&format!("accounts[{n}].label"), "is in the list twice");
                }
                Some(one) => bindings.push(one),
                None => {}
            }
        }
        item.accounts = Some(bindings);
    }

    /// In their order; a masked one stands for the key that is there and looks like it.
    fn api_keys(&mut self, value: &Value) -> Vec<Key> {
        let Value::Array(rows) = value else {
            self.refuse("api_keys", "must be a list of keys, first used first");
            return Vec::new();
        };
        let mut keys: Vec<Key> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            let field = format!("api_keys[{n}]");
            match self.read(&field, key, row) {
                Some(key) if key.expose().is_empty() => self.refuse(&field, "must not be empty"),
                Some(key) if !key.is_masked() && keys.contains(&key) => {
                    self.refuse(&field, "is in the list twice");
                }
                Some(key) => keys.push(key),
                None => {}
            }
        }
        keys
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
        item.credits = fields.get("credits").and_then(|value| self.read("credits", money, value));
        item.pools = fields.get("pools").map(|value| self.pools(value));
    }

    fn pools(&mut self, value: &Value) -> Vec<String> {
        let Value::Array(keys) = value else {
            self.refuse("pools", "must be a list of pool keys; [] = every pool");
            return Vec::new();
        };
        let mut pools = Vec::new();
        for (n, key) in keys.iter().enumerate() {
            match key.as_str().unwrap_or_default().parse::<GroupKey>() {
                Ok(key) => pools.push(key.to_string()),
                Err(error) => self.refuse(&format!("pools[{n}]"), error.0),
            }
        }
        pools
    }
}

/// The name of a part of a field; of the field itself where the part has none.
fn within(field: &str, part: &str) -> String {
    if part.is_empty() { field.to_owned() } else { format!("{field}.{part}") }
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
    use super::super::{MASK, mask, parse, parse_row};
    use super::*;

    #[test]
    fn a_row_with_many_mistakes_names_them_all() {
        let row = "models: [{weight: 0, priority: x, features: {stream: 2, ratios: 1}, prices: {per_mile: 1, per_image: -1}, \
                   routing: {zz: 1, fallback_candidate: maybe}, api_keys: [1, ''], \
                   accounts: [{priority: x, zz: 1}, {label: b}, {label: b}], base_url: 'ftp://x'}]";
        let fields: Vec<_> = parse(row, &|_| None)
            .expect_err("there are problems")
            .into_iter()
            .map(|problem| problem.field)
            .collect();
        assert_eq!(
            fields,
            [
                "name",
                "base_url",
                "weight",
                "priority",
                "features.stream",
                "features.ratios",
                "prices.per_mile",
                "prices.per_image",
                "routing.zz",
                "routing.fallback_candidate",
                "api_keys[0]",
                "api_keys[1]",
                "accounts[0].zz",
                "accounts[0].label",
                "accounts[0].priority",
                "accounts[2].label",
            ]
        );
        let caller = serde_json::json!({ "pools": ["ok", "not ok", 7] });
        assert_eq!(parse_row(Section::Callers, "a", &caller).expect_err("two are no keys").len(), 2);
    }

    #[test]
    fn the_legacy_keys_of_a_model_keep_their_order_and_their_masks() {
        let row = serde_json::json!({ "api_keys": ["sk-first", "****1234", "sk-last"] });
        let item = parse_row(Section::Models, "m", &row).expect("three keys");
        let keys = item.api_keys.as_deref().expect("they are mentioned");
        assert_eq!(keys.iter().map(Key::expose).collect::<Vec<_>>(), ["sk-first", "****1234", "sk-last"]);
        assert_eq!(keys.iter().map(Key::is_masked).collect::<Vec<_>>(), [false, true, false]);
        assert!(!format!("{item:?}").contains("sk-"), "no key in any Debug");
        let twice = serde_json::json!({ "api_keys": ["sk-a", "sk-a"] });
        assert!(parse_row(Section::Models, "m", &twice).is_err());
        assert_eq!(parse_row(Section::Models, "m", &serde_json::json!({})).expect("none").api_keys, None);
    }

    #[test]
    fn a_base_url_has_no_query_and_no_fragment() {
        for url in ["https://host/v1?key=1", "https://host/v1#top", "https://host?x", "https://host/#"] {
            let row = serde_json::json!({ "base_url": url, "proxy_url": url });
            assert_eq!(parse_row(Section::Providers, "p", &row).expect_err(url).len(), 2);
        }
        let row = serde_json::json!({ "base_url": "https://host:8443/v1//" });
        let item = parse_row(Section::Providers, "p", &row).expect("a plain URL");
        assert_eq!(item.text("base_url"), Some("https://host:8443/v1"));
    }

    #[test]
    fn an_empty_upstream_model_means_the_models_own_name() {
        let row = serde_json::json!({ "upstream_model": "" });
        let item = parse_row(Section::Models, "m", &row).expect("it may be empty");
        assert_eq!(item.text("upstream_model"), Some(""));
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
}
