//! What commands print: lines for people, or one JSON value for scripts.

use serde_json::Value;

use super::{Output, pretty};

/// Prints either lines or JSON.
pub(super) struct Printer {
    as_json: bool,
}

impl Printer {
    pub(super) const fn new(output: Output) -> Self {
        Self { as_json: output.json }
    }

    /// A line for people.
    pub(super) fn line(&self, text: &str) {
        if !self.as_json {
            println!("{text}");
        }
    }

    /// The answer for scripts.
    pub(super) fn json(&self, value: &Value) {
        if self.as_json {
            println!("{}", pretty(value));
        }
    }

    /// What changes in a row, a line a field.
    pub(super) fn fields(&self, before: &Value, after: &Value) {
        let Value::Object(fields) = after else { return };
        for (name, value) in fields {
            self.line(&format!("    {name}: {} → {value}", before.get(name).unwrap_or(&Value::Null)));
        }
    }
}
