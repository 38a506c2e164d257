//! A file read into a value, with every key that a map has twice: the usual reading keeps the last one
//! and says nothing, and so half of an edit would be lost.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value, and where keys are repeated: `models[0].weight`.
type Read = (Value, Vec<String>);

/// Reads JSON where the file begins like JSON, else YAML.
///
/// # Errors
/// When it is neither.
pub(super) fn read(text: &str) -> Result<Read, String> {
    if text.trim_start().starts_with('{') {
        let mut json = serde_json::Deserializer::from_str(text);
        let read = with_repeated(&mut json).and_then(|read| json.end().map(|()| read));
        return read.or_else(|as_json| {
            with_repeated(serde_yaml_ng::Deserializer::from_str(text)).map_err(|_| as_json.to_string())
        });
    }
    with_repeated(serde_yaml_ng::Deserializer::from_str(text)).map_err(|error| error.to_string())
}

fn with_repeated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
    let repeated = RefCell::default();
    let value = Node { at: String::new(), repeated: &repeated }.deserialize(deserializer)?;
    Ok((value, repeated.into_inner()))
}

/// The place of a field within the value at `at`.
pub(super) fn within(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

struct Node<'r> {
    at: String,
    repeated: &'r RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, a list, text, a number, true, false or null")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // JSON has no `.nan` or `.inf`; as null they would clear a field.
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let at = format!("{}[{}]", self.at, list.len());
            match items.next_element_seed(Node { at, repeated: self.repeated })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let at = within(&self.at, &name);
            let value = fields.next_value_seed(Node { at: at.clone(), repeated: self.repeated })?;
            if map.insert(name, value).is_some() {
                self.repeated.borrow_mut().push(at);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_name_the_keys_that_they_have_twice() {
        let json = r#"{"a": 1, "b": [{"c": 1, "c": 2}], "a": {"d": 1, "e": 1, "d": 3}}"#;
        let yaml = "a: 1\nb: [{c: 1, c: 2}]\na:\n  d: 1\n  e: 1\n  d: 3\n";
        let value = json!({"a": {"d": 3, "e": 1}, "b": [{"c": 2}]});
        for text in [json, yaml] {
            let (read, repeated) = read(text).expect("it is well formed");
            assert_eq!(read, value, "{text}");
            assert_eq!(repeated, ["b[0].c", "a.d", "a"], "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        assert!(read("{\"a\": 1} trailing").is_err());
        assert!(read("a: [1").is_err());
        assert!(read("a: .nan").is_err(), "a number must be finite");
        assert_eq!(read("{a: 1}").map(|(value, _)| value), Ok(json!({"a": 1})), "YAML in braces");
        assert_eq!(read(""), Ok((Value::Null, Vec::new())));
    }

    proptest! {
        #[test]
        fn json_is_read_as_serde_json_reads_it(text in "[\\[\\]{}\":,a-c0-9. ]{0,24}") {
            let text = format!("{{{text}}}");
            if let Ok(expected) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(read(&text).map(|(value, _)| value), Ok(expected));
            }
        }
    }
}
