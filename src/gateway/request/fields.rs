//! Fields of a JSON body: taken out or looked at, and what is wrong is named.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::gateway::error::ApiError;

/// Where fields lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a JSON body.
    Body,
    /// In a form, where numbers are texts.
    Form,
    /// In the `input` of /api/generate.
    Input,
}

impl Place {
    /// How errors name a field there.
    pub(super) fn name(self, field: &str) -> String {
        match self {
            Self::Body | Self::Form => field.to_owned(),
            Self::Input => format!("input.{field}"),
        }
    }
}

/// Fields of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) map: &'a Map<String, Value>,
    pub(super) place: Place,
}

impl Fields<'_> {
    pub(super) fn wrong(&self, name: &str, remedy: &str) -> ApiError {
        ApiError::invalid(&self.place.name(name), remedy)
    }

    /// A number that a form wrote as a text.
    fn written<T: std::str::FromStr>(&self, value: &Value) -> Option<T> {
        value.as_str().filter(|_| self.place == Place::Form)?.parse().ok()
    }

    /// The field, unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A whole number within `range`.
    pub(super) fn whole(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| self.written(value));
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let remedy = format!("must be a whole number between {} and {}", range.start(), range.end());
                Err(self.wrong(name, &remedy))
            }
        }
    }

    /// A number within `range`.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().or_else(|| self.written(value));
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let remedy = format!("must be a number between {} and {}", range.start(), range.end());
                Err(self.wrong(name, &remedy))
            }
        }
    }

    /// A text of 1 to `longest` characters.
    pub(super) fn text(&self, name: &str, longest: usize) -> Result<Option<&str>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str().filter(|text| !text.is_empty() && text.chars().count() <= longest) {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(name, &format!("must be a text of 1 to {longest} characters"))),
        }
    }

    /// A text that has to be there.
    pub(super) fn needed_text(&self, name: &str, longest: usize) -> Result<&str, ApiError> {
        self.text(name, longest)?.ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// One of `words`.
    pub(super) fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str().filter(|word| words.contains(word)) {
            Some(word) => Ok(Some(word)),
            None => Err(self.wrong(name, &format!("must be one of {}", words.join(", ")))),
        }
    }

    /// Refuses a field that this gateway does not serve.
    pub(super) fn refuse(&self, name: &str) -> Result<(), ApiError> {
        match self.get(name) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(Value::String(word)) if self.place == Place::Form && word == "false" => Ok(()),
            Some(_) => Err(ApiError::unsupported(name)),
        }
    }
}

/// Takes a short text out of a body.
pub(super) fn text(body: &mut Map<String, Value>, name: &str) -> Result<Option<String>, ApiError> {
    match body.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=512).contains(&text.chars().count()) => Ok(Some(text)),
        Some(_) => Err(ApiError::invalid(name, "must be a text of 1 to 512 characters")),
    }
}

/// Takes a flag out of a body.
pub(super) fn flag(body: &mut Map<String, Value>, name: &str) -> Result<bool, ApiError> {
    match body.shift_remove(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(_) => Err(ApiError::invalid(name, "must be true or false")),
    }
}
