//! One row: its known fields read, its problems collected.

use forebay_engine::GroupKey;
use serde_json::{Map, Value};

use super::fields::{MILLION, Section};
use super::values::{binding, cell, key, money, optional_text, routing, whole};
use super::{BindingItem, Item, Problem};

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
            item.account_key =
                fields.get("account_key").and_then(|value| reader.read("account_key", key, value)).flatten();
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
        item.pool = fields.get("pool").and_then(|value| self.read("pool", optional_text, value));
        item.routing = fields.get("routing").and_then(|value| self.read("routing", routing, value));
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
        item.credits = fields.get("credits").and_then(|value| self.read("credits", money, value));
        item.pools = fields.get("pools").and_then(|value| {
            self.read(
                "pools",
                |value| {
                    let keys = value.as_array().ok_or("must be a list of pool keys; [] = every pool")?;
                    keys.iter()
                        .map(|key| {
                            let key = key.as_str().ok_or("must be a list of pool keys; [] = every pool")?;
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
